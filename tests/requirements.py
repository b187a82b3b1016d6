"""Every promise of the spec that can be broken, with its id and source; tests name the ones they show.

`@covers("queue.fifo")` marks a test. What stands in OPEN has no system yet. `tests/house/test_requirements.py` fails
when a promise outside OPEN has no test, when one inside OPEN has one, and when a test names a promise nobody made.
Sources: A architecture, I ingress and trust (with lines), C the product card.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeVar

T = TypeVar("T", bound=Callable[..., object])


def covers(*ids: str) -> Callable[[T], T]:
    """Mark a test as showing these promises."""

    def mark(test: T) -> T:
        test.__dict__["covers"] = ids
        return test

    return mark


class Promise(NamedTuple):
    id: str
    source: str
    text: str


PROMISES = (
    # Program and card
    Promise("ship.binary.self-contained", "A head 3; C kind", "one program file holds all that Fermix needs to run"),
    Promise("ship.binary.pyinstaller", "C kind, top-level", "PyInstaller builds it from `fermix.spec`"),
    Promise(
        "ship.binary.all-faces", "C used-by", "the frozen file gives TUI, headless daemon, one-shots and channels alike"
    ),
    Promise(
        "ship.native.bundled-verified",
        "C shape",
        "the compiled kill shim is in the file (or fetched) and its checksum is verified",
    ),
    Promise(
        "ship.browser.fetched-verified",
        "C shape",
        "the Playwright browser is bundled or fetched on first run, checksum verified",
    ),
    Promise("ship.fetch.bad-checksum", "C shape", "a wrong checksum is refused and nothing becomes active"),
    Promise("ship.nuitka.optional", "C packages", "Nuitka is optional"),
    Promise(
        "repo.layout", "C top-level", "the named files and packages, README and tests stand at the top of the repo"
    ),
    Promise(
        "repo.packages",
        "C packages",
        "textual, rich, httpx, aiohttp, aiosqlite, tomlkit, pyinstaller, mcp, playwright, python-telegram-bot are used",
    ),
    Promise("daemon.aiohttp.health", "C shape; A umbrella 11", "the aiohttp daemon serves health endpoints"),
    Promise("daemon.aiohttp.webhooks", "C shape; A umbrella 11", "the aiohttp daemon serves the platform webhooks"),
    Promise("daemon.socket.unix", "C shape; A topology 36", "local clients come over a Unix socket"),
    Promise("daemon.headless", "C used-by", "`fermix --daemon` runs without a screen"),
    Promise("service.units", "C used-by", "runs under systemd and under launchd"),
    Promise("tui.attaches", "C shape", "the terminal UI is a client that attaches to the daemon"),
    Promise("tui.chat", "C shape", "chat in the terminal UI"),
    Promise("tui.setup", "C shape", "setup in the terminal UI"),
    Promise("tui.traces.live", "C shape", "live traces in the terminal UI"),
    Promise("tui.approvals", "C shape", "approvals in the terminal UI"),
    Promise("cli.ask.one-shot", "C used-by; A trust 120", "`fermix ask` answers once and ends"),
    Promise("signal.asyncio-child", "C packages; A head 3", "signal-cli is driven as an asyncio child of the daemon"),
    Promise(
        "web.home-and-setup",
        "A umbrella 11, topology 25",
        "home page and setup page are served, with their static files inside the binary",
    ),
    # Process shape
    Promise("proc.one-process", "A head 3, topology 18-31", "all work of Fermix itself happens in one OS process"),
    Promise(
        "proc.helpers.closed-list",
        "A head 3, design 158",
        "outside it live only signal-cli, local MCP servers, the managed browser, the computer-use helper",
    ),
    Promise("proc.no-own-http", "A head 3, umbrella 14, design 148", "our own parts never talk over loopback HTTP"),
    Promise("proc.no-broker-no-pool", "A head 3", "no message broker and no separate worker pool"),
    Promise("proc.state.one-owner", "A head 3", "each long-lived piece of state has one named owner"),
    Promise("proc.supervised.restart", "A head 3", "a long-lived part that dies is started again by itself"),
    Promise("proc.supervised.gives-up", "A topology 29", "a core part that cannot be kept up ends the whole program"),
    Promise("arch.core-below-channels", "A umbrella 14", "the core does not import channels or web"),
    Promise("arch.core-without-web", "A umbrella 14", "the core does not depend on the web framework"),
    Promise("arch.webhook-calls-gateway", "A design 148", "a webhook route calls `ingest` as a function"),
    Promise(
        "arch.outbound.kinds",
        "A topology 33-38",
        "outbound traffic goes to providers, channel APIs, MCP servers and verified downloads only",
    ),
    # Ingress pipeline
    Promise("ingress.single-entry", "I intro 5; A flow 59", "every message of every channel enters by one function"),
    Promise(
        "ingress.voice.entry", "A flow 55; I intro 5", "how voice, which has its own session server, meets that rule"
    ),
    Promise("ingress.order", "I pipeline 9-25", "the eight steps happen in their order"),
    Promise("ingress.normalize", "I pipeline 11; A flow 57", "each payload becomes one message type"),
    Promise("ingress.required-fields", "I pipeline 11", "six fields are required and the error names the missing one"),
    Promise("ingress.invalid.dropped", "I pipeline 11", "an invalid message is dropped with an error log"),
    Promise("ingress.authorize.before-agent", "I pipeline 13; A trust 105", "trust is decided before the agent runs"),
    Promise("ingress.deny.logged", "I pipeline 13, rules 55", "a denial is one warning in the log"),
    Promise(
        "ingress.deny.silent",
        "I pipeline 13, rules 55; A flow 61",
        "a denied sender gets no reply while the platform gets its acknowledgement",
    ),
    Promise("ingress.deny.no-agent", "I pipeline 13; A trust 112", "the agent is never called for a denied sender"),
    Promise("ingress.reply-path.before-media", "I pipeline 15", "the way back exists before media are touched"),
    Promise(
        "audio.with-or-without-caption", "I pipeline 17; A flow 62", "audio and voice notes become text, caption or not"
    ),
    Promise("audio.caption.delimiter", "I pipeline 17", "caption first, then the delimiter line, then the transcript"),
    Promise("audio.fail.no-backend", "I pipeline 17", "no backend: the reply points at `fermix setup`"),
    Promise(
        "audio.fail.too-large", "I pipeline 17", "over the cap: the reply gives the limit and asks for a shorter clip"
    ),
    Promise("audio.fail.other", "I pipeline 17", "any other failure: the reply says so and asks to try again"),
    Promise("audio.fail.no-turn", "I pipeline 17", "a failed transcription schedules no turn"),
    Promise("audio.cap.default", "I pipeline 17", "`[fermix_core.transcription] max_file_mb`, default 20"),
    Promise(
        "image.attached-as-image", "I pipeline 17; A flow 63", "images are downloaded and reach the model as pictures"
    ),
    Promise(
        "image.fail.no-degraded-turn",
        "I pipeline 17",
        "one failed download means no turn, never a turn without the image",
    ),
    Promise("image.fail.log-only", "I pipeline 17", "that failure is loud in the log and silent to the sender"),
    Promise("image.non-vision.loud", "I pipeline 17", "an image for a model without vision fails loudly"),
    Promise("album.telegram", "I pipeline 17", "updates of one media group become one turn"),
    Promise("album.whatsapp", "I pipeline 17", "a burst of single images becomes one turn"),
    Promise("album.debounce", "I pipeline 17", "a short wait gathers the parts"),
    Promise(
        "album.others-at-once", "I pipeline 17", "Discord, Slack and Signal already carry all parts, so nothing waits"
    ),
    Promise("empty.reply", "I pipeline 19; A flow 65", "nothing readable: the spec's sentence is sent"),
    Promise("empty.no-turn", "I pipeline 19; A flow 66", "no turn is scheduled, no model called"),
    Promise(
        "empty.image-alone-is-content",
        "I pipeline 19",
        "a picture without caption is not empty; sticker, poll and blank are",
    ),
    Promise("empty.after-authorization", "I pipeline 19", "a stranger never gets that sentence"),
    Promise("typing.when-able", "I pipeline 21", "typing is shown where the channel can"),
    Promise(
        "stream.spec.once",
        "I pipeline 21",
        "streaming is resolved once per turn and needs the channel's ability and the config",
    ),
    Promise("command.recognised", "I pipeline 23; A flow 67", "a known slash command runs its own handler"),
    Promise("command.enqueues", "I pipeline 23", "a command that needs a turn hands on a changed message"),
    Promise("command.unknown-is-text", "I pipeline 23", "an unknown one goes to the agent as text"),
    Promise("enqueue.trust-attached", "I pipeline 25, flows 105", "the message carries its trust into the queue"),
    Promise("enqueue.agent-not-ready", "I pipeline 25", "agent restarting: the spec's sentence instead of silence"),
    # Queue
    Promise("queue.key", "A flow 72; I pipeline 25", "a conversation is channel, chat and thread scope"),
    Promise("queue.one-active", "A design 150", "at most one turn of a conversation runs"),
    Promise(
        "queue.fifo",
        "A flow 69-72, design 150",
        "messages of a conversation run in order of arrival; a new one waits and cancels nothing",
    ),
    Promise("queue.only-stop-cancels", "A design 150", "only `/stop` ends a running turn"),
    Promise("queue.independent", "A design 150; I pipeline 25", "different conversations run at the same time"),
    Promise("queue.waiting-is-kept", "I pipeline 25", "waiting messages wait; no bound is given"),
    Promise("turn.snapshot", "A flow 74-75, design 148", "a turn runs on one snapshot of the cached runtime context"),
    Promise("turn.own-task", "A flow 75-76", "each turn is a supervised task of its own"),
    # Turn, loop, commit
    Promise("turn.history.loaded", "A flow 77", "recent history goes into the prompt"),
    Promise("turn.compaction.preflight", "A flow 78", "a conversation over the threshold is compacted before the turn"),
    Promise("turn.prompt.parts", "A flow 79", "cached base, runtime section, fresh date note"),
    Promise("turn.tools.filtered", "A flow 80", "tool schemas are filtered by trust and policy"),
    Promise("turn.user-message.first", "A flow 81, 94-95", "the user message is stored before the loop starts"),
    Promise("loop.call-run-continue", "A flow 83-88", "model, tool calls, results, until no calls remain"),
    Promise("loop.admission-per-call", "A flow 86", "each call is admitted before it runs"),
    Promise("loop.cap.default", "A flow 88-89", "bounded, 100 by default"),
    Promise("loop.cap.not-config", "A flow 89", "the bound is no `config.toml` section"),
    Promise("commit.after-delivery", "A flow 91-94", "reply delivered first, then the assistant message stored"),
    Promise(
        "commit.review.background", "A flow 95-96", "the memory review starts afterwards, in the background, time-gated"
    ),
    Promise("commit.compaction.after", "A flow 97", "a compaction check follows delivery"),
    Promise("reply.by-channel-api", "A flow 99", "the adapter sends through the platform's API"),
    Promise("channel.telegram.long-poll", "A flow 51, topology 34; I idempotency 141", "Telegram is polled"),
    Promise("channel.discord.websocket", "A flow 52, topology 35", "Discord comes over its gateway socket"),
    Promise("channel.webhooks", "A flow 48, topology 33; I idempotency 134", "WhatsApp and Slack come by webhook"),
    # Authorization
    Promise("auth.rule1.local", "I rules 48, two-tier 38; A trust 108", "`cli` and `daemon` are always operator"),
    Promise("auth.rule2.unknown-channel", "I rules 49", "a channel name nobody knows is its own error"),
    Promise("auth.rule3.no-sender", "I rules 50", "no sender id: denied"),
    Promise("auth.rule4.owner", "I rules 51; A trust 110", "explicit owner: operator"),
    Promise("auth.rule5.listed", "I rules 52; A trust 111, 116", "on the ingress list: guest"),
    Promise("auth.rule6.otherwise", "I rules 53; A trust 112", "everybody else: denied"),
    Promise(
        "auth.tui-channel", "I rules 48-49; C shape", "under which channel name the TUI and other socket clients speak"
    ),
    Promise("auth.no-allow-all", "A trust 116, design 156", "there is no setting that lets everybody in"),
    Promise("owner.explicit-only-for-trust", "I owner 63", "trust looks at `owner_user_id` alone"),
    Promise("owner.command-fallback", "I owner 64, 68", "without an owner, the sole list entry may run commands"),
    Promise("owner.two-need-explicit", "I owner 68", "with two or more entries the fallback is off"),
    Promise("owner.friend-stays-guest", "I owner 66; A trust 116", "a list entry never makes an operator"),
    Promise(
        "config.list-key.names",
        "I keys 74-89",
        "list key per platform (user ids: Telegram, Discord, Slack; sender ids: WhatsApp, Signal); the example section loads as written",
    ),
    Promise("config.command-allowlist", "I keys 91", "lets named non-owners run mutating commands"),
    Promise("config.command-allowlist.absent", "I keys 91", "absent: commands are the owner's"),
    Promise("whoami.answers-id", "I keys 93", "`/whoami` tells the sender id"),
    Promise(
        "whoami.discovery", "I keys 93 with pipeline 13", "the owner can learn the id of an account not yet listed"
    ),
    Promise("setup.reconfigure", "I keys 93", "`fermix setup --reconfigure` adds an id"),
    Promise("config.edit-by-hand", "I keys 93; A persistence 129", "the file may be edited by hand"),
    Promise("config.env-overrides", "I related 146", "environment variables may override settings"),
    Promise(
        "failclosed.inert",
        "I fail-closed 97-99; A design 156",
        "enabled without owner and list: nobody gets in, the channel warns, acknowledges, runs nothing",
    ),
    Promise(
        "doctor.channel-row",
        "I fail-closed 101",
        "doctor calls each enabled channel configured or misconfigured, from the gateway's own config accessors",
    ),
    # Trust and tools
    Promise("trust.two-levels", "I two-tier 31-36", "operator or guest, nothing between"),
    Promise(
        "trust.operator.full",
        "A trust 108-110, 120; I two-tier 35",
        "six policy classes, and an operator reaches all of them",
    ),
    Promise(
        "trust.guest.no-effect-classes",
        "I two-tier 36; A trust 111",
        "no file or git write, exec, network, external API for guests",
    ),
    Promise(
        "trust.guest.no-mcp-no-skills", "I two-tier 36", "guests never see MCP tools or skills, whatever their class"
    ),
    Promise("trust.guest.keeps-read-only", "I two-tier 36, flows 118; A trust 111", "guests do have the read-only set"),
    Promise("trust.missing-is-guest", "A trust 116; I flows 119", "no trust stated means guest"),
    Promise("trust.whole-turn", "I flows 105-120", "trust is fixed at ingress and holds through the turn"),
    Promise("trust.memory.directive", "I flows 122", "a guest's behaviour-shaping memory never reaches the prompt"),
    Promise("trust.voice.operator", "A trust 109", "local voice is operator, same surface as the main agent"),
    Promise("trust.job.operator", "A trust 113", "a job made by an operator has the full surface"),
    Promise("trust.job.guest", "A trust 114", "a job made by a guest has read-only plus network tools"),
    Promise("trust.job.clamped", "A trust 114", "its tool list is cut to what its creator could call"),
    Promise(
        "gui.registers-when-ready",
        "A trust 120; I two-tier 42",
        "off by default; the tool exists only when enabled and its helper is installed",
    ),
    Promise("gui.operator-only", "A trust 120; I two-tier 42", "guests never see it"),
    Promise("gui.never-delegated", "A trust 120; I two-tier 42", "no sub-agent gets it"),
    Promise(
        "gui.attended-only",
        "A trust 120",
        "only chat, `fermix ask` or voice may start a session; a scheduled run may not",
    ),
    # Sandbox and request cwd
    Promise(
        "sandbox.cwd.local-operator",
        "I flows 124",
        "only the local CLI attaches its folder, and only an operator turn may use it",
    ),
    Promise("sandbox.cwd.real-inside-home", "I flows 124", "only a real folder strictly inside the real home"),
    Promise("sandbox.cwd.standard-mode", "I flows 124", "as a root of the default standard mode"),
    Promise(
        "sandbox.guest.roots", "I flows 124", "a guest turn has the mode's roots and the grants, never a request cwd"
    ),
    Promise("sandbox.launch-folder", "I flows 124", "the daemon's start folder counts when inside the home"),
    Promise(
        "sandbox.workspace.floor", "A persistence 134", "the workspace under the home is the default place to write"
    ),
    Promise("sandbox.grants.roots", "I flows 124, 126", "`[sandbox] allowed_roots` holds the grants"),
    # Approvals
    Promise("approval.seam.operator", "I flows 126", "only operator turns get the approval seam"),
    Promise(
        "approval.tool.advertised",
        "I flows 126",
        "`request_directory_access` shows only at the top of an attended operator turn with a way back; guest, scheduled, unattended and delegated runs never see it",
    ),
    Promise("approval.prompt.content", "I flows 126", "canonical path, reason and config diff are shown"),
    Promise("approval.token.once-60s", "I flows 126", "a token works once and for 60 seconds"),
    Promise("approval.token.origin", "I flows 126", "bound to channel, chat, thread and user"),
    Promise(
        "approval.confirm.strict",
        "I flows 126",
        "`/confirm`, `/grant`, `/revoke` are the operator's alone, never by `command_allowlist`",
    ),
    Promise("approval.grant.persists", "I flows 126", "an approval is written to the allowed roots"),
    Promise("approval.resume", "I flows 126", "on a chat channel the original request runs on by itself"),
    Promise("approval.button", "I flows 128", "one tap approves on Telegram and on Discord"),
    Promise("approval.button.same-path", "I flows 128", "the tap is the same confirmation with the same checks"),
    Promise("approval.text-elsewhere", "I flows 128", "all other surfaces show text"),
    Promise("approval.shared.withheld", "I flows 128", "in a shared chat on a button channel the code is not shown"),
    Promise(
        "approval.shared.other-ways", "I flows 128", "there the owner may approve by button, direct message or CLI"
    ),
    Promise("approval.tap.before-token", "I flows 130", "a non-owner's tap is refused before the token is spent"),
    Promise("approval.tap.discord-note", "I flows 130", "Discord tells that tapper privately that it is not allowed"),
    Promise("approval.tap.discord-not-ingested", "I flows 130", "and never ingests the tap"),
    Promise("approval.check-then-take", "I flows 130", "wrong origin or too late never burns the live token"),
    # Idempotency
    Promise(
        "idem.webhook.ack-not-rerun",
        "A flow 49-50; I idempotency 134",
        "a repeated webhook delivery is acknowledged and not run",
    ),
    Promise("idem.place", "A flow 48-50", "the check stands at the webhook, before the pipeline"),
    Promise("idem.key", "I idempotency 134", "keyed on channel and platform message id"),
    Promise("idem.atomic", "I idempotency 136", "one fresh, all others duplicate, under any race"),
    Promise("idem.ttl", "I idempotency 137", "kept 24 hours"),
    Promise("idem.forget-on-failed-start", "I idempotency 138", "a failed hand-over forgets the key"),
    Promise("idem.process-local", "I idempotency 139", "may be lost at restart (ours survives; the draft says so)"),
    Promise("idem.not-telegram", "I idempotency 141", "not applied to Telegram's long poll"),
    # Persistence
    Promise("home.root", "A persistence 126", "all state under `FERMIX_HOME`, by default a dot folder in the home"),
    Promise("home.table", "A persistence 128-142", "each artifact at its path in the table, with its mode"),
    Promise("home.config", "A persistence 129", "`config.toml`, written by setup and by hand"),
    Promise("home.auth", "A persistence 130", "provider tokens in `auth.json`, 0600"),
    Promise("home.db", "A persistence 131", "one SQLite store, `memory.db`"),
    Promise("home.prompt-files", "A persistence 132", "prompt files by agent id under `memory/`"),
    Promise("home.bootstrap", "A persistence 133", "bootstrap files by agent id, seeded by setup"),
    Promise(
        "home.skills",
        "A persistence 135",
        "user skills in `skills/`, bundled ones in the binary, plugin ones in the plugin store",
    ),
    Promise("home.plugins", "A persistence 136", "installed plugins in `plugins/`"),
    Promise("home.helper-cache", "A persistence 136", "the computer-use helper is kept beside them"),
    Promise("home.grants", "A persistence 137", "a record of each grant in `grants/`"),
    Promise("home.logs", "A persistence 138", "`logs/fermix.log`, five files of 10 MB"),
    Promise("home.traces", "A persistence 139", "traces by day and type as JSONL"),
    Promise("home.job-runs", "A persistence 140", "artifacts of a run under its id"),
    Promise("home.daemon-socket", "A persistence 141", "`daemon.sock`, 0600"),
    Promise("home.realtime-socket", "A persistence 142", "`realtime.sock`, 0600"),
    Promise("db.canonical", "A persistence 144", "SQLite is the truth of durable memory"),
    Promise("prompt-files.derived", "A persistence 144", "prompt files are derived and can be rebuilt"),
    Promise(
        "history.write-through", "A persistence 144", "history is written in the background with at most three tries"
    ),
    Promise("history.restored", "A persistence 144, design 152", "a restart finds recent conversations again"),
    Promise("history.hot", "A design 152", "history is served from memory"),
    Promise("facts.hot", "A design 152", "remembered facts are served from memory"),
    Promise("hot-path.no-disk-wait", "A design 152", "a turn never waits for the disk"),
    Promise("db.fts", "A design 152", "full-text search in SQLite"),
    Promise("db.atomic", "A design 152", "durable writes are atomic"),
    # Registry and deferral
    Promise(
        "registry.three-kinds",
        "A design 154",
        "one registry is the only source, with built-ins, skills and MCP tools side by side",
    ),
    Promise(
        "registry.filters",
        "A trust 118, design 154",
        "one filter: trust (which decides), policy, allowed list, excluded categories and names",
    ),
    Promise("deferral.default-on", "A design 154", "plugin and MCP schemas are held back by default"),
    Promise("deferral.names-listed", "A design 154", "their names are still listed for the model"),
    Promise("deferral.bridges", "A design 154", "three bridge tools find, describe and call them"),
    Promise("deferral.off", "A design 154", "one config key sends all schemas inline"),
    Promise("skills.in-registry", "A design 154", "skills are capabilities under that filter"),
    Promise("mcp.local-and-remote", "A head 3, topology 36", "local servers as children, remote ones over HTTP"),
    Promise("plugins.verified-download", "A topology 37-38", "plugins and helpers are downloaded verified"),
    # Helpers and children
    Promise("helper.own-process", "A design 158", "whatever may crash or hang runs as its own supervised process"),
    Promise("helper.crash-isolated", "A design 158", "a helper's death never takes the daemon down"),
    Promise("helper.mcp", "A head 3", "local MCP servers spawned and supervised"),
    Promise("helper.browser", "A head 3", "the managed browser spawned and supervised"),
    Promise(
        "helper.gui.handshake",
        "A design 158",
        "versions are compared at the start of a session; a mismatch refuses to run and says so",
    ),
    Promise(
        "child.every-command",
        "A design 158",
        "shell, git, profiles, signal-cli, credential helpers all run under the one host",
    ),
    Promise("child.plugin-probes", "A design 158", "plugin runtime probes too"),
    Promise("child.owned-from-start", "A design 158", "the process group has an owner at every moment"),
    Promise("child.exit.kills-group", "A design 158", "normal exit kills what is left of the group"),
    Promise("child.owner-death.kills-group", "A design 158", "the requester's death kills it"),
    Promise("child.shutdown.kills-group", "A design 158", "daemon shutdown kills it outright"),
    Promise(
        "child.timeout-or-cap.term-drain-kill",
        "A design 158",
        "timeout and output cap: TERM, drain, grace, always KILL",
    ),
    Promise("child.no-orphans", "A design 158; A umbrella 11", "no grandchild survives, every descendant is reaped"),
    Promise("native.direct-syscall", "A design 158", "the sweep is a direct syscall and starts no process"),
    Promise("native.table-full", "A design 158", "it works with the process table full"),
    Promise(
        "native.only-c", "A design 158; A umbrella 11", "a small C shim is our one piece of in-process native code"
    ),
    # Watching
    Promise("traces.best-effort", "A design 160", "a failed trace write is logged and changes no reply"),
    Promise("opik.opt-in", "A umbrella 12, design 160", "inert unless `FERMIX_OPIK_ENABLED` is set"),
    Promise("opik.off-path", "A umbrella 12, design 160", "never on the reply path"),
    Promise("opik.zero-when-off", "A design 160", "off, it adds nothing to a turn"),
)

OPEN = frozenset(
    {
        "ship.binary.all-faces",
        "ship.browser.fetched-verified",
        "ship.nuitka.optional",
        "repo.layout",
        "repo.packages",
        "daemon.aiohttp.webhooks",
        "service.units",
        "tui.traces.live",
        "tui.approvals",
        "signal.asyncio-child",
        "web.home-and-setup",
        "proc.one-process",
        "proc.helpers.closed-list",
        "proc.state.one-owner",
        "arch.webhook-calls-gateway",
        "arch.outbound.kinds",
        "ingress.voice.entry",
        "album.telegram",
        "album.whatsapp",
        "album.others-at-once",
        "command.enqueues",
        "commit.review.background",
        "channel.telegram.long-poll",
        "channel.discord.websocket",
        "channel.webhooks",
        "setup.reconfigure",
        "doctor.channel-row",
        "trust.voice.operator",
        "trust.job.operator",
        "trust.job.guest",
        "trust.job.clamped",
        "gui.registers-when-ready",
        "gui.operator-only",
        "gui.never-delegated",
        "gui.attended-only",
        "approval.button",
        "approval.tap.discord-note",
        "approval.tap.discord-not-ingested",
        "idem.place",
        "idem.not-telegram",
        "home.skills",
        "home.plugins",
        "home.helper-cache",
        "home.job-runs",
        "home.realtime-socket",
        "db.fts",
        "skills.in-registry",
        "mcp.local-and-remote",
        "plugins.verified-download",
        "helper.mcp",
        "helper.browser",
        "helper.gui.handshake",
        "child.plugin-probes",
        "opik.opt-in",
        "opik.off-path",
        "opik.zero-when-off",
    }
)
