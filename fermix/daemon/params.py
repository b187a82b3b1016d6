"""Check what a client sent against its shape in protocol/, once, before any method acts on it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import TypeVar, cast

from pydantic import TypeAdapter, ValidationError

from fermix.daemon.socket import RequestError
from fermix.protocol.methods import Code

T = TypeVar("T")
Params = Mapping[str, object]
Result = Mapping[str, object]


def checked(shape: type[T], params: Params) -> T:
    """Raises: RequestError that names the first wrong field."""
    try:
        return cast("T", _adapter(shape).validate_python(params, strict=True, extra="forbid"))  # it has just checked it
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise RequestError(Code.INVALID_PARAMS, f"{where}: {first['msg']}") from error


@cache
def _adapter(shape: type[object]) -> TypeAdapter[object]:
    """Made when first needed: all of them together take a start ten milliseconds and a megabyte."""
    return TypeAdapter(shape)
