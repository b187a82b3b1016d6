"""Whom outgoing TLS connections trust. Every client of ours takes its context here: `net.py`, `fetch.py`, the probe.

The user's word counts first (SSL_CERT_FILE, SSL_CERT_DIR), then the machine's own store, which knows a company's
authority too, then the set that comes with us. OpenSSL alone would look where the machine that built it keeps its
store, and a frozen program runs on others.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

import certifi

from fermix.errors import NeedsOperator

SYSTEM_STORES = (
    Path("/etc/ssl/certs/ca-certificates.crt"),  # Debian, Ubuntu, Arch, Alpine, NixOS
    Path("/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem"),  # Fedora, RHEL
    Path("/etc/pki/tls/certs/ca-bundle.crt"),  # older ones of that family
    Path("/etc/ssl/ca-bundle.pem"),  # openSUSE
    Path("/etc/ssl/cert.pem"),  # macOS
)


@cache
def client_context() -> ssl.SSLContext:
    """Return the one context of this process. The first call reads a file of 200 kB and takes a tenth of a second.

    Raises: NeedsOperator when what the user named cannot be used.
    """
    return make_context(os.environ)


def make_context(environ: Mapping[str, str], stores: Sequence[Path] = SYSTEM_STORES) -> ssl.SSLContext:
    """Return a context that checks certificates and names. Raises: NeedsOperator."""
    file, folder = environ.get("SSL_CERT_FILE") or None, environ.get("SSL_CERT_DIR") or None
    if file is None and folder is None:
        file = str(_first_filled(stores))
    try:
        context = ssl.create_default_context(cafile=file, capath=folder)
    except OSError as error:
        raise NeedsOperator(
            f"no certificate authorities can be read from {file}",
            advice="let SSL_CERT_FILE name a PEM file of those you trust",
        ) from error
    context.set_alpn_protocols(["http/1.1"])  # what our clients speak
    return context


def _first_filled(stores: Sequence[Path]) -> Path:
    """A minimal machine may have an empty file in the usual place; ours is never empty."""
    ours = Path(certifi.where())
    return next((store for store in stores if store.is_file() and store.stat().st_size > 0), ours)
