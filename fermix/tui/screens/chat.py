"""The conversation: transcript, what runs and waits, the prompt, the status line."""

from __future__ import annotations

from time import monotonic
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.screen import Screen
from textual.timer import Timer
from textual.widgets import Static

from fermix.tui.blocks import UserBlock
from fermix.tui.desk import Desk
from fermix.tui.messages import Submitted
from fermix.tui.session import Conversation
from fermix.tui.visible import one_line
from fermix.tui.widgets.prompt import Prompt
from fermix.tui.widgets.status_bar import Facts, StatusBar
from fermix.tui.widgets.transcript import Transcript
from fermix.tui.widgets.waiting import Waiting

FRAME_S = 0.1  # ten updates a second look smooth and leave the loop to the keys
REST = 2  # a frame that took a while is followed by twice as long for the keys
TYPING_S = 0.1  # while keys arrive this fast, streamed words wait
LONGEST_WAIT_S = 0.3  # but not longer than this
QUIET_S = 2.0  # without a key or a drawing for so long, nobody waits
KEYS = (
    "Enter send · Ctrl+J newline · Esc stop · Ctrl+R conversations · Ctrl+C twice quits",
    "Enter send · Esc stop · Ctrl+C twice quits · Ctrl+R conversations",
    "Enter send · Esc stop · Ctrl+C twice quits",
    "Enter send · Esc stop · ^C quits",
    "Enter · Esc · ^C",
)
FRAME_CELLS = 8  # of the prompt's own border beside the keys
MODEL_CHARS = 60
REASON_CHARS = 160


class ChatScreen(Screen[None]):
    """Draws `desk.conversation`; `draw_soon` is called after every change."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "stop", "Stop", priority=True),
        Binding("pageup", "page(-1)", "Earlier", priority=True),
        Binding("pagedown", "page(1)", "Later", priority=True),
        Binding("ctrl+end", "latest", "Latest", priority=True),
        Binding("ctrl+o", "unfold", "Tool result", priority=True),
    ]

    def __init__(self, desk: Desk, home: str) -> None:
        super().__init__()
        self._desk = desk
        self._home = home
        self._shown: Conversation | None = None
        self._due: Timer | None = None
        self._pause_s = FRAME_S
        self._began_at = self._drawn_at = self._typed_at = 0.0

    def compose(self) -> ComposeResult:
        yield Static(_welcome(), id="welcome", markup=False)
        yield Transcript()
        yield Waiting()
        yield Prompt()
        yield StatusBar(self._home)

    def on_mount(self) -> None:
        self.query_one(Prompt).focus()
        self.draw_soon()

    def on_resize(self) -> None:
        fitting = (keys for keys in KEYS if len(keys) + FRAME_CELLS <= self.size.width)
        self.query_one(Prompt).border_subtitle = next(fitting, "")

    def draw_soon(self) -> None:
        """Draw within a frame; many changes make one drawing."""
        if self._due is None and self.is_mounted:
            self._due = self.set_timer(self._pause_s, self._draw)

    @property
    def is_quiet(self) -> bool:
        """True when no reply is being drawn and no key was pressed lately."""
        return self._due is None and monotonic() - max(self._typed_at, self._drawn_at) > QUIET_S

    async def _draw(self) -> None:
        now = monotonic()
        if now - self._typed_at < TYPING_S and now - self._drawn_at < LONGEST_WAIT_S:
            self._due = self.set_timer(TYPING_S, self._draw)
            return
        self._due = None
        self._began_at = now
        conversation, transcript = self._desk.conversation, self.query_one(Transcript)
        if conversation is not self._shown:
            self._shown = conversation
            await transcript.show(())
            await transcript.latest(conversation.blocks)
        else:
            await transcript.show(conversation.blocks)
        self._draw_lines(conversation)
        self.call_after_refresh(self._rest)

    def _rest(self) -> None:
        """The frame is out: the longer it took, the longer the keys have the loop for themselves."""
        self._drawn_at = monotonic()
        self._pause_s = max(FRAME_S, REST * (self._drawn_at - self._began_at))

    def _draw_lines(self, conversation: Conversation) -> None:
        desk = self._desk
        empty = not conversation.blocks
        self.query_one("#welcome").display = empty
        self.query_one(Transcript).display = not empty
        self.query_one(Waiting).show(
            conversation.activity, conversation.waiting, connected=desk.link.connected, turn=conversation.running
        )
        local = desk.local_model
        self.query_one(StatusBar).facts = Facts(
            home=self._home,
            connected=desk.link.connected,
            trouble=one_line(desk.trouble, limit=MODEL_CHARS),
            model=desk.model and one_line(desk.model, limit=MODEL_CHARS),
            session=conversation.session,
            input_tokens=conversation.input_tokens,
            output_tokens=conversation.output_tokens,
            degraded=one_line(", ".join(desk.degraded), limit=MODEL_CHARS),
            degraded_why=one_line("; ".join(desk.degraded.values()), limit=REASON_CHARS),
            progress=local.done_bytes / local.total_bytes if local.fetching and local.total_bytes else None,
        )

    def on_text_area_changed(self) -> None:
        self._typed_at = monotonic()

    async def on_submitted(self, message: Submitted) -> None:
        await self._desk.submit(message.text)
        self.query_one(Transcript).follow()

    async def action_stop(self) -> None:
        if self._desk.conversation.running is not None:
            await self._desk.stop_running()

    async def action_page(self, step: int) -> None:
        await self.query_one(Transcript).page(step)

    async def action_latest(self) -> None:
        await self.query_one(Transcript).latest(self._desk.conversation.blocks)

    def action_unfold(self) -> None:
        self.query_one(Transcript).unfold_last_tool()

    def recall_from(self, conversation: Conversation) -> None:
        """Let Up walk through what was said in this conversation."""
        said = [block.text for block in conversation.blocks if isinstance(block, UserBlock) and not block.continued]
        self.query_one(Prompt).remember(said)


def _welcome() -> Content:
    return Content.assemble(
        ("F e r m i x\n", "bold $primary"),
        ("your own agent, on your own machine\n\n", "$text-muted"),
        ("Ask it anything. It reads files and runs commands for you,\n", "$text"),
        ("and shows each one as it happens.\n\n", "$text"),
        ("Ctrl+N new · Ctrl+R conversations · Ctrl+P providers", "$text-muted"),
    )
