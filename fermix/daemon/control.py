"""Who could answer now, and what clients may ask of the daemon itself: reload, fetch the local model, stop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from fermix.agent.agent import Agent
from fermix.agent.budget import Books, Budget, BudgetSettings
from fermix.agent.compaction.settings import CompactionSettings
from fermix.agent.context import PromptSettings
from fermix.agent.providers.catalog import LOCAL_ID
from fermix.agent.providers.chain import Candidate, find_candidates
from fermix.agent.providers.embedded import EmbeddedModel
from fermix.agent.providers.local_provider import LocalProvider
from fermix.agent.providers.routing import Router
from fermix.agent.registry import CapabilityRegistry
from fermix.agent.sandbox import Policy
from fermix.agent.tools.keys import find_tool_keys
from fermix.channels.catalog import CHANNELS, access_rules, album_times, stream_tiers
from fermix.clock import Clock
from fermix.config.model import Config, LocalModelSettings
from fermix.config.secret_store import open_store
from fermix.config.secrets import Secret
from fermix.daemon.health import HealthBoard
from fermix.daemon.http import HttpServer
from fermix.events import Events
from fermix.gateway import Access, Authorizer, Gateway
from fermix.gateway.media import MediaStep
from fermix.gateway.settings import ChannelSpec
from fermix.gateway.transcription import ChosenTranscriber, Voice, find_voice
from fermix.gateway.transcription.transcriber import TranscriptionSettings
from fermix.home import Home
from fermix.native.private import Used, used
from fermix.net import Net
from fermix.protocol.methods import ChannelRow, Channels, CommandWalls, LocalRow, ProviderRow, Reloaded
from fermix.setup.readiness import HERE, judge
from fermix.setup.sections import load_config
from fermix.visible import spelled
from fermix.workers import Workers

log = logging.getLogger(__name__)

BuildRegistry = Callable[[Config, Mapping[str, Secret]], CapabilityRegistry]

NEED_RESTART = ("fermix_core", "fermix_core.local_model", "fermix_core.traces", "fermix_web")


def read_candidates(home: Home, config: Config) -> tuple[Candidate, ...]:
    """Find the configured providers and their keys; blocks on the secret store. Raises: ConfigError, NeedsOperator."""
    core = config.core.settings
    return find_candidates(config, open_store(home, core.secret_store, core.profile))


def read_voice(home: Home, config: Config) -> Voice:
    """Find what turns voice notes into text; blocks on the secret store. Raises: ConfigError, NeedsOperator."""
    core = config.core.settings
    return find_voice(config, open_store(home, core.secret_store, core.profile))


def read_tool_keys(home: Home, config: Config) -> Mapping[str, Secret]:
    """Find the keys that tools have of their own; blocks on the secret store. Raises: ConfigError, NeedsOperator."""
    core = config.core.settings
    return find_tool_keys(config, open_store(home, core.secret_store, core.profile))


def prompt_settings(config: Config) -> PromptSettings:
    return PromptSettings(config.core.agent, config.core.personalization)


def _read_at_start(config: Config, name: str) -> object:
    """Return what of a section waits for a restart; who answers does not."""
    section = config.sections[name]
    if isinstance(section, LocalModelSettings):
        return section.mirror, section.threads, section.idle_s
    return section


class Routes:
    """The chain of providers in use. Replaced whole on a reload; a running turn keeps the one it began with."""

    def __init__(self, net: Net, embedded: EmbeddedModel, events: Events, clock: Clock, books: Books) -> None:
        self._net = net
        self._embedded = embedded
        self._events = events
        self._clock = clock
        self._books = books
        self._candidates: tuple[Candidate, ...] = ()
        self._local = LocalModelSettings()
        self.router = Router((), (), clock, events, books)

    def use(self, candidates: Sequence[Candidate], local: LocalModelSettings) -> None:
        """Build the chain afresh."""
        self._candidates, self._local = tuple(candidates), local
        embedded = LocalProvider.of(self._embedded, self._net) if local.enabled else None
        self.router = Router.build(
            candidates, embedded, self._net, self._clock, self._events, self._books, embedded_first=local.primary
        )

    @property
    def current(self) -> str | None:
        """The route that would answer now. A local model that is not here yet cannot, nor a provider without a key."""
        route = self.router.current
        if route is None:
            return None
        if route.provider == LOCAL_ID:
            return str(route) if self.local()["state"] in HERE else None
        usable = any(row["usable"] for row in self.rows() if row["provider"] == route.provider)
        return str(route) if usable else None

    def rows(self) -> list[ProviderRow]:
        return self.router.rows()

    def missing(self) -> list[str]:
        return [failure.action for failure in judge(self._candidates, self._local, self._embedded.status).failures]

    def local(self) -> LocalRow:
        return {**self._embedded.status, "primary": self._local.primary}


@dataclass(frozen=True, slots=True)
class Parts:
    """What a reload changes, and what else clients reach."""

    routes: Routes
    agent: Agent
    tools: BuildRegistry
    embedded: EmbeddedModel
    http: HttpServer
    health: HealthBoard
    workers: Workers
    authorizer: Authorizer
    policy: Policy
    gateway: Gateway
    media: MediaStep
    transcriber: ChosenTranscriber
    budget: Budget


class Control:
    """What `fermix setup`, `fermix stop` and the terminal UI ask for."""

    def __init__(
        self,
        home: Home,
        environ: Mapping[str, str],
        config: Config,
        keys: Mapping[str, Secret],
        parts: Parts,
        stop: asyncio.Event,
    ) -> None:
        self._home = home
        self._environ = environ
        self._began_with = config
        self._config = config
        self._keys = keys
        self._parts = parts
        self._stop = stop
        parts.policy.tell(self.rebuild_tools)

    async def reload(self) -> Reloaded:
        """Read the configuration again. What is wrong is an answer, and the old configuration stays in use."""
        parts, began_with = self._parts, self._began_with
        config = await parts.workers.run(load_config, self._home, self._environ)
        candidates = await parts.workers.run(read_candidates, self._home, config)
        voice = await parts.workers.run(read_voice, self._home, config)
        keys = await parts.workers.run(read_tool_keys, self._home, config)
        restart = [name for name in NEED_RESTART if _read_at_start(config, name) != _read_at_start(began_with, name)]
        await parts.policy.reread()
        self._config, self._keys = config, keys
        parts.health.waits_for_restart(restart)
        parts.authorizer.use(access_rules(config))
        parts.gateway.use(streaming=stream_tiers(config), album_quiet_s=album_times(config))
        parts.transcriber.use(voice)
        parts.media.use(config[TranscriptionSettings].max_file_bytes)
        parts.budget.use(config[BudgetSettings], config.core.personalization.timezone)
        parts.routes.use(candidates, config.core.local_model)
        self.rebuild_tools()
        log.info("configuration read again")
        return {"model": parts.routes.current, "restart_required": restart}

    def rebuild_tools(self) -> None:
        """Build the tools again from what is in use: some of them are made of the sandbox's policy."""
        parts, config = self._parts, self._config
        registry = parts.tools(config, self._keys)
        parts.agent.reconfigure(
            registry=registry,
            router=parts.routes.router,
            settings=prompt_settings(config),
            compaction=config[CompactionSettings],
        )

    def fetch_model(self) -> None:
        self._parts.embedded.fetch()

    def stop(self) -> None:
        self._stop.set()

    async def commands(self) -> CommandWalls:
        """Say what holds the commands of tools on this system."""
        kernel = await self._parts.policy.kernel()
        return {
            "told": await self._parts.policy.walls(),
            "form": kernel.form,
            "offline": kernel.offline,
            "landlock": kernel.landlock,
            "missing": list(kernel.missing),
        }

    async def used(self) -> Used:
        return await self._parts.workers.run(used)

    def channels(self) -> Channels:
        """Tell which channels are configured and who was denied."""
        authorizer = self._parts.authorizer
        denied = authorizer.denied()
        return {
            "channels": [channel_row(spec, self._config, authorizer.access(spec.name)) for spec in CHANNELS],
            "denied": [
                {"channel": row.channel, "sender": row.sender, "name": row.name, "at": row.at.isoformat(),
                 "times": row.times}
                for row in denied
            ],
        }  # fmt: skip

    def http_address(self) -> str:
        return self._parts.http.address

    def environment(self) -> list[str]:
        return list(self._config.environment)


def channel_row(spec: ChannelSpec, config: Config, access: Access | None) -> ChannelRow:
    """Tell of one channel as configured, and of what keeps people out."""
    settings, access = config.section(spec.section, spec.settings), access or Access(local=False)
    problems = _channel_problems(spec, spec.no_ids(config), access) if settings.enabled else []
    return {
        "channel": spec.name,
        "enabled": settings.enabled,
        "owner": access.owner,
        "guests": len(access.listed),
        "problem": "; ".join(problems),
    }


def _channel_problems(spec: ChannelSpec, no_ids: Sequence[str], access: Access) -> list[str]:
    """Say why people are denied on a channel that is on, and that nobody can be heard there yet."""
    problems: list[str] = []
    if no_ids:
        told = ", ".join(f'"{spelled(text)}"' for text in no_ids)
        verb = "is no id" if len(no_ids) == 1 else "are no ids"
        problems.append(f'{told} {verb} of this platform (one looks like "{spec.id_example}")')
    if access.owner is None and not access.listed:
        problems.append("everybody is denied" + ("" if no_ids else ", since neither owner nor list is set"))
    return [*problems, "this version cannot connect to it yet"]
