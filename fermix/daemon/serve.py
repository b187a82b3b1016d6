"""The composition root: the only place where the floors meet. Opens, wires, runs, and closes in reverse.

`serve` reads like a table of contents. On a stop the gateway refuses new messages and drains its lanes while clients
are still connected; then everything closes backwards, the database last.
"""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from fermix import __version__
from fermix.agent.agent import Agent, AgentServices
from fermix.agent.approvals import Approvals
from fermix.agent.budget import Budget, BudgetSettings
from fermix.agent.capability import Capability
from fermix.agent.compaction.settings import CompactionSettings
from fermix.agent.memory import Conversations
from fermix.agent.memory.facts import Facts
from fermix.agent.memory.search import Search
from fermix.agent.providers.chain import Candidate
from fermix.agent.providers.embedded import EmbeddedModel
from fermix.agent.providers.local_files import LocalFiles
from fermix.agent.providers.override_changes import OverrideChanges
from fermix.agent.registry import CapabilityRegistry
from fermix.agent.sandbox import Policy, Sandbox, SandboxSettings
from fermix.agent.tools.catalog import ToolDeps, build_tools
from fermix.agent.turn import Turn
from fermix.channels.catalog import access_rules, album_times, enabled_channels, stream_tiers
from fermix.channels.local import LocalChannel
from fermix.clock import SystemClock
from fermix.config.model import Config
from fermix.config.secrets import Secret
from fermix.daemon import answers
from fermix.daemon.answers import Answers
from fermix.daemon.audience import Audience
from fermix.daemon.control import BuildRegistry, Control, Parts, Routes, prompt_settings
from fermix.daemon.health import HealthBoard
from fermix.daemon.http import HttpServer
from fermix.daemon.liveness import ChannelWatch
from fermix.daemon.socket import SocketServer
from fermix.daemon.traces import TraceWriter
from fermix.daemon.unpacked import UnpackedFiles
from fermix.events import Events
from fermix.gateway import Authorizer, Gateway, Ledger, Rooms
from fermix.gateway.commands.catalog import COMMANDS
from fermix.gateway.media import MediaStep
from fermix.gateway.transcription import ChosenTranscriber, LocalListener, Voice, VoiceFiles
from fermix.gateway.transcription.choice import LISTENS_ITSELF
from fermix.gateway.transcription.transcriber import TranscriptionSettings
from fermix.home import Home
from fermix.native.program import FROZEN
from fermix.net import Net
from fermix.public import PublicWeb
from fermix.setup.sections import SECRET_NAMES, SECTIONS
from fermix.store import ContentCheck, Database
from fermix.supervisor import OURS, OUTSIDE, Supervisor
from fermix.workers import Workers

log = logging.getLogger(__name__)

WATCHER_EVENTS = 10_000  # what a slow watcher may be behind before it loses the oldest

BuildTools = Callable[[ToolDeps], Sequence[Capability]]


@dataclass(frozen=True, slots=True)
class Start:
    """What a daemon starts from. `program` is the command that runs Fermix itself."""

    home: Home
    environ: Mapping[str, str]
    config: Config
    candidates: tuple[Candidate, ...]
    program: tuple[str, ...]
    launch_folder: Path
    tools: BuildTools = build_tools
    voice: Voice = LISTENS_ITSELF
    keys: Mapping[str, Secret] = field(default_factory=dict[str, Secret])


async def serve(start: Start) -> None:
    """Run until SIGTERM, SIGINT or a client's wish.

    Raises: NeedsOperator when something must be mended first; in a group, GaveUp when a part cannot be kept up.
    """
    stop, home, config, clock = _until_told(), start.home, start.config, SystemClock()
    async with AsyncExitStack() as house:
        events, workers = Events(clock), Workers()
        house.callback(workers.close)
        net = await house.enter_async_context(Net.open())
        database = await house.enter_async_context(Database.open(home.database))
        conversations = await house.enter_async_context(Conversations.open(database, clock, events))
        audience = Audience(house.enter_context(events.subscribe(WATCHER_EVENTS)))
        health = HealthBoard(home, clock, house.enter_context(events.subscribe(WATCHER_EVENTS)))
        traces = TraceWriter(events, clock, config.trace_folder, workers, content=config.core.traces.content)
        watchers = [traces, audience, health, ContentCheck(database)]
        await house.enter_async_context(Supervisor(watchers, OURS, events, clock))
        embedded = _embedded(start, events, clock)
        budget = await Budget.open(database, clock, config[BudgetSettings], config.core.personalization.timezone)
        routes = _routes(start, net, embedded, events, clock, budget)
        health.watch_models(routes)
        policy, approvals = Policy(_sandbox(start, workers), home, SECTIONS, workers, clock), Approvals(clock)
        facts = Facts(database, home, workers, clock, lambda: agent.invalidate())
        search = Search.following(conversations, database, workers, clock)
        tools = _tools(start, policy, approvals, net, workers, (facts, budget, search), lambda: control.reload())
        agent = await house.enter_async_context(
            Agent.open(AgentServices(
                tools(config, start.keys), routes.router, conversations, home, prompt_settings(config), workers,
                events, clock, approvals, facts.remembered, config[CompactionSettings],
                ended=partial(_tidy, policy.sandbox, workers),
            ))
        )  # fmt: skip
        authorizer, ledger = Authorizer(access_rules(config)), Ledger(database, clock)
        listener, media = _media(start, net, workers, clock, budget)
        rooms = Rooms(
            agent, authorizer, ledger, conversations, policy, approvals, COMMANDS, events, clock, media, budget
        )
        gateway = await house.enter_async_context(Gateway.open(rooms))
        gateway.use(streaming=stream_tiers(config), album_quiet_s=album_times(config))
        local, http = LocalChannel(audience), HttpServer(config.web.bind, config.web.port, health)
        await gateway.recover({local.name: local})
        parts = Parts(
            routes, agent, tools, embedded, http, health, workers, authorizer, policy, gateway, media, listener, budget
        )  # fmt: skip
        control = Control(home, start.environ, config, start.keys, parts, stop)
        desk = answers.Rooms(
            home, clock, gateway, local, conversations, audience, health, routes, workers, control, policy, facts,
            budget, search,
        )  # fmt: skip
        socket = SocketServer(home.daemon_socket, Answers(desk), audience)
        health.watch_channels(watch := ChannelWatch([local], enabled_channels(config), events, clock))
        await house.enter_async_context(Supervisor([watch, socket, http], OURS, events, clock))
        await house.enter_async_context(
            Supervisor([search, embedded, listener.local, *_unpacked(start, clock)], OUTSIDE, events, clock)
        )
        log.info("ready: Fermix %s serves %s", __version__, home.root)
        await stop.wait()
        log.info("stopping")
        await gateway.drain()


def _tools(
    start: Start,
    policy: Policy,
    approvals: Approvals,
    net: Net,
    workers: Workers,
    kept: tuple[Facts, Budget, Search],
    reload: Callable[[], Awaitable[object]],
) -> BuildRegistry:
    """Return what builds all tools for a configuration and the keys found with it."""
    web, overrides = PublicWeb(net), OverrideChanges(start.home, SECTIONS, workers, reload)
    deps = ToolDeps(
        policy.sandbox, workers, policy, approvals, start.program, net, start.config, start.keys, web, overrides,
        *kept,
    )  # fmt: skip
    return lambda config, keys: CapabilityRegistry(start.tools(replace(deps, config=config, keys=keys)))


def _tidy(sandbox: Sandbox, workers: Workers, turn: Turn) -> None:
    """Remove what the commands of a turn left in their temporary folder."""
    if (remove := sandbox.forget(turn)) is not None:
        workers.post(remove)


def _until_told() -> asyncio.Event:
    """Return what is set when the system or a client wants the daemon to end."""
    stop = asyncio.Event()
    for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):  # the last one when its terminal is closed
        asyncio.get_running_loop().add_signal_handler(signum, stop.set)
    return stop


def _sandbox(start: Start, workers: Workers) -> Sandbox:
    settings = start.config[SandboxSettings]
    sandbox = Sandbox(settings, start.home, start.launch_folder, Path.home(), start.environ, key_names=SECRET_NAMES)
    workers.post(sandbox.prepare)
    return sandbox


def _embedded(start: Start, events: Events, clock: SystemClock) -> EmbeddedModel:
    settings = start.config.core.local_model
    files = LocalFiles.of(start.home.models)
    return EmbeddedModel(settings, files, start.program, start.environ, events, clock)


def _routes(
    start: Start, net: Net, embedded: EmbeddedModel, events: Events, clock: SystemClock, budget: Budget
) -> Routes:
    routes = Routes(net, embedded, events, clock, budget)
    routes.use(start.candidates, start.config.core.local_model)
    return routes


def _media(
    start: Start, net: Net, workers: Workers, clock: SystemClock, budget: Budget
) -> tuple[ChosenTranscriber, MediaStep]:
    models = start.home.models
    listener = LocalListener(lambda: VoiceFiles.of(models), start.program, start.environ, workers, clock)
    transcriber = ChosenTranscriber(net, listener, start.voice, budget)
    return transcriber, MediaStep(transcriber, start.config[TranscriptionSettings].max_file_bytes)


def _unpacked(start: Start, clock: SystemClock) -> tuple[UnpackedFiles, ...]:
    return (UnpackedFiles(start.program, start.environ, clock),) if FROZEN else ()
