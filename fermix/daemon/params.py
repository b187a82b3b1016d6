"""Check what a client sent against its shape in protocol/, once, before any method acts on it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from pydantic import TypeAdapter, ValidationError

from fermix.daemon.socket import RequestError
from fermix.protocol.methods import Code

T = TypeVar("T")
Params = Mapping[str, object]
Result = Mapping[str, object]


def checked(adapter: TypeAdapter[T], params: Params) -> T:
    """Raises: RequestError that names the first wrong field."""
    try:
        return adapter.validate_python(params, strict=True, extra="forbid")
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise RequestError(Code.INVALID_PARAMS, f"{where}: {first['msg']}") from error
