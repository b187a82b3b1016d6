"""The C extension, loaded once. Imported by the typed modules beside it and by nobody else.

Fermix does not run without it: a command that cannot be ended must not be started.
"""

from __future__ import annotations

try:
    from fermix.native import _native as native
except ImportError as error:
    raise ImportError("the C part of Fermix is not built; run `pip install -e .` in its folder") from error

__all__ = ["native"]
