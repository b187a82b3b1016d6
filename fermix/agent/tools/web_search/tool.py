"""web_search: ask one service for pages. What needs no key stands in, once, for one that fails, and says so.

`services.py` knows the companies and their wire formats, `settings.py` the section of config.toml.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace

from fermix.agent.capability import Capability, Kind, ToolContext
from fermix.agent.documents.reading import Reading
from fermix.agent.model import JsonValue, ToolResult, valid_text
from fermix.agent.tools.web_search import services
from fermix.agent.tools.web_search.services import Found, Service, find_service
from fermix.agent.tools.web_search.settings import SECTION, WebSearchSettings
from fermix.agent.turn import Turn
from fermix.config.secrets import Secret
from fermix.errors import FermixError, Refused, Unavailable, Unusable
from fermix.net import Net, NetFailed, Timeouts
from fermix.public import PublicWeb
from fermix.trust import PolicyClass

log = logging.getLogger(__name__)

QUERY_CHARS = 1_024
ANSWER_BYTES = 1_048_576
TIMEOUTS = Timeouts(connect_s=3.0, chunk_s=15.0, total_s=30.0)
BAD_QUERY = (400, 414, 422)
BLOCKED = 202  # with this DuckDuckGo answers those it takes for robots


def tools(
    settings: WebSearchSettings, keys: Mapping[str, Secret], net: Net, web: PublicWeb, reading: Reading
) -> tuple[Capability, ...]:
    """Build the tool. `keys` hold "web_search.brave" and the like."""
    service = find_service(settings.backend)
    key = keys.get(f"web_search.{settings.backend}")
    return (
        Capability(
            name="web_search",
            description="Search the web. Gives titles, addresses and snippets; read a page with web_fetch.",
            parameters={
                "type": "object",
                "properties": {"query": {"type": "string", "minLength": 1, "maxLength": QUERY_CHARS}},
                "required": ["query"],
                "additionalProperties": False,
            },
            kind=Kind.BUILTIN,
            policy=PolicyClass.NETWORK,
            owner_only=True,
            run=Searcher(net, web, reading, service, key).run,
            category="web",
            when_to_use="for anything recent, and to find pages whose address is not known",
            examples=('{"query": "python 3.13 release date"}',),
            failure_modes=("a service may take many searches in a row for a robot's and refuse for a while",),
            requires_setup=f"nothing for DuckDuckGo; the other services need a key in [{SECTION}]",
        ),
    )


class Failed(Unavailable):
    """A service did not answer the question. `reason` is shown to the model and holds no key."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason, user_text=reason)
        self.reason = reason


class BadQuery(FermixError):
    """It answered that this cannot be searched for; another service would say the same."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What is told. The query is left out: words of the model must not come back as words that were read."""

    backend: str
    results: Sequence[Found]
    degraded: bool = False
    primary_backend: str = ""
    fallback_reason: str = ""

    def text(self) -> str:
        shown = asdict(self) if self.degraded else {"backend": self.backend, "results": asdict(self)["results"]}
        return json.dumps(shown, ensure_ascii=False)


class Searcher:
    """The tool itself. `service` None: DuckDuckGo alone."""

    def __init__(
        self, net: Net, web: PublicWeb, reading: Reading, service: Service | None, key: Secret | None,
        *, duckduckgo: str = services.DUCKDUCKGO,
    ) -> None:  # fmt: skip
        self._net = net
        self._web = web
        self._reading = reading
        self._service = service
        self._key = key
        self._duckduckgo_url = duckduckgo

    async def run(self, arguments: Mapping[str, JsonValue], context: ToolContext) -> ToolResult:
        query = valid_text(str(arguments["query"]))
        if not query.strip():
            return ToolResult(False, "the query is empty")
        try:
            return ToolResult(True, (await self._search(query, context.turn)).text())
        except Failed as failure:
            return ToolResult(False, f"{failure.reason}. The owner can choose a service with a key in [{SECTION}].")

    async def _search(self, query: str, turn: Turn) -> Answer:
        """Raises: Failed, BadQuery."""
        if self._service is None:
            return await self._duckduckgo(query, turn)
        try:
            return Answer(self._service.name, await self._ask(self._service, query))
        except Failed as failure:
            log.warning("%s could not search: %s", self._service.label, failure.reason)
            answer = await self._duckduckgo(query, turn)
            return replace(answer, degraded=True, primary_backend=self._service.name, fallback_reason=failure.reason)

    async def _ask(self, service: Service, query: str) -> list[Found]:
        """Raises: Failed, BadQuery."""
        if self._key is None:
            raise Failed(f"the key for {service.label} is missing")
        headers = service.headers(self._key.reveal())
        try:
            status, answer = await (self._get if service.body is None else self._post)(service, query, headers)
            _check(service.label, status)
            return service.results(answer)
        except (NetFailed, Refused, Unusable) as error:
            raise Failed(f"{service.label} failed: {error}") from error

    async def _get(self, service: Service, query: str, headers: Mapping[str, str]) -> tuple[int, bytes]:
        fetched = await self._web.get(service.address(query), headers)
        return fetched.status, fetched.body

    async def _post(self, service: Service, query: str, headers: Mapping[str, str]) -> tuple[int, bytes]:
        assert service.body is not None
        body = json.dumps(service.body(query)).encode("ascii")
        async with self._net.post_stream(service.url, headers=headers, body=body, timeouts=TIMEOUTS) as response:
            return response.status, await response.read(ANSWER_BYTES)

    async def _duckduckgo(self, query: str, turn: Turn) -> Answer:
        """Raises: Failed."""
        try:
            fetched = await self._web.get(services.duckduckgo_address(query, self._duckduckgo_url))
            if fetched.status != BLOCKED:
                _check("DuckDuckGo", fetched.status)
            listed = await self._reading.text("list of results", fetched.body, turn, {})
            return Answer("duckduckgo", services.duckduckgo_results(listed))
        except (NetFailed, Refused, Unusable) as error:
            raise Failed(f"DuckDuckGo failed: {error}") from error


def _check(label: str, status: int) -> None:
    """Raises: BadQuery, Failed unless the status is one of success."""
    if status in BAD_QUERY:
        raise BadQuery(f"status {status}", user_text=f"{label} does not accept this query: write it differently.")
    if not 200 <= status < 300:
        raise Failed(f"{label} answered with status {status}{_meaning(status)}")


def _meaning(status: int) -> str:
    match status:
        case 401 | 403:
            return ", the key is not accepted"
        case 402 | 432 | 433:
            return ", the plan is used up"
        case 429:
            return ", too many requests"
        case _:
            return ""
