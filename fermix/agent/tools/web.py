"""web_fetch: read one page of the public internet. Who may be asked is judged by `fermix/public.py`."""

from __future__ import annotations

from collections.abc import Mapping

from fermix.addresses import parse
from fermix.agent.capability import Capability, Kind, ToolContext
from fermix.agent.documents.charset import decoded
from fermix.agent.documents.reading import Reading
from fermix.agent.model import JsonValue, ToolResult
from fermix.agent.risk import why_composed
from fermix.agent.turn import Turn
from fermix.public import BODY_BYTES, Fetched, PublicWeb
from fermix.trust import PolicyClass
from fermix.visible import only_seen

SHOWN_CHARS = 30_000
FAILED_CHARS = 2_000  # of a page that only says why it is none
PAGES = frozenset({"text/html", "application/xhtml+xml"})
TEXTS = frozenset(
    {"application/xml", "application/javascript", "application/yaml", "application/toml", "application/x-sh"}
)
SIGNS = (b"<!doctype html", b"<html")  # how a page without a type begins


def tools(web: PublicWeb, reading: Reading) -> tuple[Capability, ...]:
    """Build the tool."""
    return (
        Capability(
            name="web_fetch",
            description="Read a web page as Markdown, or a JSON or text file as it is.",
            parameters={
                "type": "object",
                "properties": {
                    "url": {"type": "string", "description": "http or https address"},
                    "offset": {"type": "integer", "minimum": 0, "description": "character to read on from"},
                },
                "required": ["url"],
                "additionalProperties": False,
            },
            kind=Kind.BUILTIN,
            policy=PolicyClass.NETWORK,
            owner_only=True,
            run=Fetcher(web, reading).run,
            category="web",
            when_to_use="to read a page whose address is known",
            examples=('{"url": "https://example.com/"}', '{"url": "https://example.com/long", "offset": 30000}'),
            failure_modes=(
                "addresses inside a network are refused",
                "pictures, PDF files and other types are named and not shown",
                "pages that only a script fills in come out empty",
            ),
            asks=_why_asked,
        ),
    )


def _why_asked(arguments: Mapping[str, JsonValue], context: ToolContext) -> str | None:
    """Raises: Refused for what is no public address, so that a slip of the model brings no words from outside."""
    why = why_composed(str(arguments["url"]), context.exposure)
    if why is None:
        parse(str(arguments["url"]))
    return why


class Fetcher:
    """The tool itself. No text of its own repeats the address: a written address would count as given afterwards.

    Where a server sends on to is its own choice, and told.
    """

    def __init__(self, web: PublicWeb, reading: Reading) -> None:
        self._web = web
        self._reading = reading

    async def run(self, arguments: Mapping[str, JsonValue], context: ToolContext) -> ToolResult:
        url, offset = str(arguments["url"]), arguments.get("offset")
        fetched = await self._web.get(url)
        text = await self._text(fetched, context.turn)
        if text is None:
            return ToolResult(False, f"this is {_kind(fetched)}, which web_fetch cannot show as text")
        if not 200 <= fetched.status < 300:
            return ToolResult(
                False, f"the server answered with status {fetched.status}\n\n{text[:FAILED_CHARS]}".strip()
            )
        moved = "" if fetched.url == parse(url).url else f"[the server sent on to {fetched.url}]\n\n"
        return ToolResult(True, moved + _part(text, offset if isinstance(offset, int) else 0, is_cut=fetched.cut))

    async def _text(self, fetched: Fetched, turn: Turn) -> str | None:
        """Return what came as text; None when it is none."""
        if _is_page(fetched):
            options = {"url": fetched.url, "charset": fetched.charset}
            return await self._reading.text("page", fetched.body, turn, options)
        return only_seen(decoded(fetched.body, fetched.charset)) if _is_text(fetched) else None


def _is_page(fetched: Fetched) -> bool:
    begins_so = fetched.body[:256].lstrip().lower().startswith(SIGNS)
    return fetched.media_type in PAGES or (begins_so and fetched.media_type in ("", "text/plain"))


def _is_text(fetched: Fetched) -> bool:
    kind = fetched.media_type
    named = kind.startswith("text/") or kind.endswith(("json", "+xml", "+yaml")) or kind in TEXTS
    return named or (kind == "" and b"\0" not in fetched.body)


def _kind(fetched: Fetched) -> str:
    size = f"more than {BODY_BYTES}" if fetched.cut else str(len(fetched.body))
    return f"{fetched.media_type or 'a file of an unknown type'} of {size} bytes"


def _part(text: str, offset: int, *, is_cut: bool) -> str:
    """Return so much as fits, and how to get the rest."""
    if offset and offset >= len(text):
        return f"[the text has only {len(text)} characters]"
    end = offset + SHOWN_CHARS
    if end < len(text):
        return f"{text[offset:end]}\n[more follows: read on with offset={end}]"
    cut = f"\n[the page is larger than {BODY_BYTES} bytes; what lies behind was not loaded]" if is_cut else ""
    return (text[offset:] or "[the page holds no text]") + cut
