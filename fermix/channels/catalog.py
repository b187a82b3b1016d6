"""Every channel, one line each."""

from __future__ import annotations

from fermix.channels import local
from fermix.gateway.authorize import Access

LOCAL = {local.NAME: Access(local=True), "daemon": Access(local=True)}
