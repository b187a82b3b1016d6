"""Every error Fermix raises on purpose, sorted by what the catcher does next.

FermixError                raised on purpose; `user_text` is what a sender may see, or None
├─ ConfigError             the operator edits a file
├─ NeedsOperator           a login, a grant or a download is missing
├─ Refused                 trust, policy or sandbox said no; never retried
│  ├─ NotAllowed           a capability is not for this caller
│  └─ OutsideSandbox       a path lies outside the allowed roots
├─ Unavailable             the other side failed; may be retried
│  ├─ ProviderUnavailable  a model provider
│  ├─ ChannelUnavailable   a messaging platform
│  └─ ServerUnavailable    an MCP server or another helper
├─ Unusable                what arrived cannot be read; retrying will not help
└─ LimitReached            one of our bounds: steps, tokens, bytes, seconds
"""

from __future__ import annotations


class FermixError(Exception):
    """Base of all deliberate errors. `user_text` may be shown to a sender; None means it may not."""

    def __init__(self, message: str, *, user_text: str | None = None) -> None:
        super().__init__(message)
        self.user_text = user_text


class ConfigError(FermixError):
    """A setting is wrong; `path` is the file, `key` the dotted key or "" when the file cannot be parsed."""

    def __init__(self, message: str, *, path: str, key: str = "") -> None:
        where = f"{path}: {key}: " if key else f"{path}: "
        super().__init__(where + message, user_text=where + message)
        self.path = path
        self.key = key


class NeedsOperator(FermixError):
    """Only the operator can mend this; `advice` says what to run or do."""

    def __init__(self, message: str, *, advice: str) -> None:
        super().__init__(f"{message}: {advice}", user_text=f"{message}: {advice}")
        self.advice = advice


class Refused(FermixError):
    """Trust, policy or the sandbox said no. Never retried."""


class NotAllowed(Refused):
    """The caller may not use this capability."""

    def __init__(self, capability: str) -> None:
        super().__init__(f"unknown or unavailable tool {capability!r}")
        self.capability = capability


class OutsideSandbox(Refused):
    """A path lies outside every allowed root, or inside a protected one."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path!r}: {reason}", user_text=f"I may not look into {path}: {reason}")
        self.path = path
        self.reason = reason


class Unavailable(FermixError):
    """The other side failed. `retry_after_s` is its own wish, None when it gave none that anybody could follow."""

    def __init__(self, message: str, *, user_text: str | None = None, retry_after_s: float | None = None) -> None:
        super().__init__(message, user_text=user_text)
        self.retry_after_s = retry_after_s if retry_after_s is not None and retry_after_s >= 0 else None  # nor for NaN


class ProviderUnavailable(Unavailable):
    """A model provider failed. The kinds are in `agent/providers/provider.py`."""


class ChannelUnavailable(Unavailable):
    """A messaging platform failed. `landed` says whether it may have taken what was sent all the same."""

    def __init__(self, message: str, *, retry_after_s: float | None = None, landed: bool = False) -> None:
        super().__init__(message, retry_after_s=retry_after_s)
        self.landed = landed


class ServerUnavailable(Unavailable):
    """A helper process or an MCP server failed."""


class Unusable(FermixError):
    """What arrived cannot be read; `field` names the part, "" when it is the whole."""

    def __init__(self, message: str, *, field: str = "", user_text: str | None = None) -> None:
        super().__init__(message, user_text=user_text)
        self.field = field


class LimitReached(FermixError):
    """One of our own bounds was hit; `limit` names it, e.g. "steps"."""

    def __init__(self, message: str, *, limit: str, user_text: str | None = None) -> None:
        super().__init__(message, user_text=user_text)
        self.limit = limit
