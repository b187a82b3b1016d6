"""Fold the daemon's events of one conversation into what a screen shows. No Textual here, no waiting.

The app owns one `Conversation` per session and hands it every event; widgets read `blocks`, `waiting` and
`activity`. An event may come late, twice, out of order or empty: it is placed by its id or does nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from fermix.tui import wire
from fermix.tui.blocks import PART_CHARS, Block, NoteBlock, ReplyBlock, ToolBlock, UserBlock, split_text
from fermix.tui.wire import Fields

REMEMBERED_ENDS = 200  # late news of a message that ended this many messages ago would be shown again
WRITING = ""  # the model of a reply that is still being written is not known yet


@dataclass(frozen=True, slots=True)
class Queued:
    """A message behind the running turn. `held` when the daemon does not have it yet."""

    id: str
    text: str
    held: bool


class Conversation:
    """One session as the owner sees it."""

    def __init__(self, session: str) -> None:
        self.session = session
        self.blocks: list[Block] = []
        self.running: str | None = None
        self.activity = ""
        self.input_tokens = 0
        self.output_tokens = 0
        self._numbers = 0
        self._texts: dict[str, str] = {}
        self._unsent: dict[str, str] = {}
        self._waiting: tuple[str, ...] = ()
        self._placed: set[str] = set()
        self._ended: deque[str] = deque(maxlen=REMEMBERED_ENDS)
        self._replied: deque[str] = deque(maxlen=REMEMBERED_ENDS)
        self._draft: list[str] = []
        self._forgotten = False
        self._dropped: list[str] = []
        self._folds: dict[str, Callable[[Fields], None]] = {
            "message.accepted": self._accepted,
            "queue.changed": self._queue_changed,
            "turn.started": self._turn_started,
            "turn.delta": self._delta,
            "tool.started": self._tool_started,
            "tool.finished": self._tool_finished,
            "reply": self._reply,
            "turn.ended": self._turn_ended,
        }

    @property
    def waiting(self) -> tuple[Queued, ...]:
        """What is not answered yet and does not run, in order."""
        held = (id_ for id_ in self._unsent if id_ not in self._placed and id_ not in self._waiting)
        return (
            *(Queued(id_, self._texts.get(id_, ""), held=False) for id_ in self._waiting),
            *(Queued(id_, self._unsent[id_], held=True) for id_ in held),
        )

    @property
    def idle(self) -> bool:
        return self.running is None and not self._waiting

    def submit(self, message_id: str, text: str, *, connected: bool) -> None:
        """Show a message that was just typed: in its place if it will run at once, else as waiting."""
        self._texts[message_id] = text
        at_once = connected and self.idle and not self._unsent
        self._unsent[message_id] = text
        if at_once:
            self._place(message_id)

    def apply(self, event: str, fields: Fields) -> None:
        """Take one event of this session; an unknown event does nothing."""
        if fold := self._folds.get(event):
            fold(fields)

    def load(self, entries: Sequence[Fields]) -> None:
        """Start from the stored history; keep what is typed but unsent and what the running turn has shown."""
        live = self._live_blocks() or self._meanwhile()
        self.blocks = []
        self._forgotten = False
        for entry in entries:
            self._restore(entry)
        self._drop_stored_copy(live)
        self.blocks += live
        self._placed = {self.running} if self.running else set()

    def forget(self) -> None:
        """The history was changed: only the running turn, and what comes from now on, stays until it is loaded."""
        self.blocks = self._live_blocks()
        self._forgotten = True

    def note(self, text: str, *, error: bool = False) -> None:
        """Add a remark of the screen itself."""
        self.blocks.append(NoteBlock(self._key(), text, "error" if error else "note"))

    def lost(self) -> None:
        """Forget what only a live connection knows; the history is loaded again after it."""
        self.running = None
        self.activity = ""
        self._waiting = ()
        self._draft = []

    # Events, in the order of a turn.

    def _accepted(self, fields: Fields) -> None:
        message_id = wire.text(fields, "id")
        if message_id in self._ended or message_id in self._placed:
            self._unsent.pop(message_id, None)
            return
        self._unsent.pop(message_id, None)
        self._texts[message_id] = wire.text(fields, "text")
        if not self.idle and message_id not in self._waiting:
            self._waiting = (*self._waiting, message_id)

    def _queue_changed(self, fields: Fields) -> None:
        waiting = wire.rows(fields, "waiting")
        self._texts |= {wire.text(row, "id"): wire.text(row, "text") for row in waiting}
        self._waiting = tuple(wire.text(row, "id") for row in waiting)
        running = wire.text(fields, "running")
        if running:
            self._run(running)
        else:
            self.running, self.activity = None, ""

    def _turn_started(self, fields: Fields) -> None:
        self._run(wire.text(fields, "message_id"))

    def _delta(self, fields: Fields) -> None:
        kind, text = wire.text(fields, "kind"), wire.text(fields, "text")
        if not text or not self._is_running(wire.text(fields, "message_id")):
            return
        if kind == "text":
            self.activity = "writing"
            self._append_draft(text)
        else:
            self.activity = "thinking" if kind == "reasoning" else f"calling {text}"

    def _tool_started(self, fields: Fields) -> None:
        name, arguments = wire.text(fields, "name"), wire.text(fields, "arguments")
        at = self._tool_at(wire.text(fields, "call_id"))
        if at is not None:
            known = self.blocks[at]
            assert isinstance(known, ToolBlock)
            self.blocks[at] = replace(known, name=name or known.name, arguments=arguments)
        elif self.running is not None:
            self._draft = []
            self.activity = f"running {name}"
            self.blocks.append(ToolBlock(self._key(), wire.text(fields, "call_id"), name, arguments, "running"))

    def _tool_finished(self, fields: Fields) -> None:
        call_id = wire.text(fields, "call_id")
        at = self._tool_at(call_id)
        if at is None and self.running is None:
            return
        if at is None:
            self._draft = []
            at = len(self.blocks)
            self.blocks.append(ToolBlock(self._key(), call_id, wire.text(fields, "name"), "", "running"))
        known = self.blocks[at]
        assert isinstance(known, ToolBlock)
        self.blocks[at] = replace(
            known,
            state="ok" if wire.flag(fields, "ok") else "failed",
            result=wire.text(fields, "result"),
            duration_s=wire.number(fields, "duration_s"),
        )
        if self.running is not None:
            self.activity = "thinking"

    def _reply(self, fields: Fields) -> None:
        message_id, text = wire.text(fields, "message_id"), wire.text(fields, "text")
        key = wire.text(fields, "key")
        if message_id in self._ended or not text.strip() or (key and key in self._replied):
            return
        self._replied.append(key)
        self._place(message_id)
        model = wire.text(fields, "model") or None
        self._replace_draft(text, model)
        self._draft = []

    def _turn_ended(self, fields: Fields) -> None:
        message_id, outcome = wire.text(fields, "message_id"), wire.text(fields, "outcome")
        if not message_id or message_id in self._ended:
            return
        if outcome == "cancelled" and self.running not in (None, message_id):
            self._dropped.append(self._texts.get(message_id, ""))  # shown behind the turn that is being stopped
            self._settle(message_id)
            return
        self._place(message_id)
        self._settle(message_id)
        if self.running == message_id:
            self._close_turn()
        self._count(fields)
        self._say_outcome(outcome, wire.text(fields, "error"))
        self._show_dropped()

    def _settle(self, message_id: str) -> None:
        self._ended.append(message_id)
        self._placed.discard(message_id)
        self._unsent.pop(message_id, None)
        self._texts.pop(message_id, None)
        self._waiting = tuple(id_ for id_ in self._waiting if id_ != message_id)

    # The parts of a turn.

    def _run(self, message_id: str) -> None:
        if not message_id or message_id in self._ended or message_id == self.running:
            return
        self._place(message_id)
        self._waiting = tuple(id_ for id_ in self._waiting if id_ != message_id)
        self.running = message_id
        self.activity = "thinking"
        self._draft = []

    def _is_running(self, message_id: str) -> bool:
        """True for the running turn; a turn that ran before this screen attached is taken up here."""
        if self.running is None and message_id:
            self._run(message_id)
        return self.running == message_id

    def _place(self, message_id: str) -> None:
        if message_id in self._placed or message_id in self._ended:
            return
        self._placed.add(message_id)
        self._show_message(self._texts.get(message_id, ""))

    def _show_message(self, text: str) -> None:
        for number, part in enumerate(split_text(text) if text else ()):
            self.blocks.append(UserBlock(self._key(), part, continued=number > 0))

    def _append_draft(self, text: str) -> None:
        tail = self.blocks[-1] if self._draft else None
        if not isinstance(tail, ReplyBlock) or tail.key != self._draft[-1]:
            tail = ReplyBlock(self._key(), "", WRITING)
            self._draft = [tail.key]
            self.blocks.append(tail)
        whole = tail.text + text
        if len(whole) <= PART_CHARS:
            self.blocks[-1] = replace(tail, text=whole)
            return
        first, *more = split_text(whole)
        self.blocks[-1] = replace(tail, text=first)
        for part in more:
            self.blocks.append(ReplyBlock(self._key(), part, WRITING))
            self._draft.append(self.blocks[-1].key)

    def _replace_draft(self, text: str, model: str | None) -> None:
        """Put a whole text where its draft stands; parts that are the same keep their keys and widgets."""
        at = next((i for i, block in enumerate(self.blocks) if self._draft and block.key == self._draft[0]), None)
        keys = self._draft if at is not None else []
        at = len(self.blocks) if at is None else at
        parts = split_text(text)
        self.blocks[at : at + len(keys)] = [
            ReplyBlock(keys[i] if i < len(keys) else self._key(), part, model, signed=i == len(parts) - 1)
            for i, part in enumerate(parts)
        ]

    def _close_turn(self) -> None:
        self.running = None
        self.activity = ""
        self._draft = []
        for at, block in enumerate(self.blocks):
            if isinstance(block, ToolBlock) and block.state == "running":
                self.blocks[at] = replace(block, state="stopped")

    def _count(self, fields: Fields) -> None:
        used = int(wire.number(fields, "input_tokens")), int(wire.number(fields, "output_tokens"))
        if any(used):
            self.input_tokens, self.output_tokens = used

    def _say_outcome(self, outcome: str, error: str) -> None:
        if outcome == "cancelled":
            self.note("Stopped.")
        elif outcome == "failed" and not self._just_said(error):
            self.note(error or "The turn failed; `fermix logs` says why.", error=True)

    def _show_dropped(self) -> None:
        dropped, self._dropped = self._dropped, []
        for text in dropped:
            self._show_message(text)
            self.note("Dropped before it ran.")

    def _just_said(self, sentence: str) -> bool:
        last = self.blocks[-1] if self.blocks else None
        return isinstance(last, ReplyBlock) and last.model is None and last.text.strip() == sentence.strip()

    def _tool_at(self, call_id: str) -> int | None:
        """Where a call's card stands; the search is from the end, where live cards are."""
        for at in range(len(self.blocks) - 1, -1, -1):
            block = self.blocks[at]
            if isinstance(block, ToolBlock) and block.call_id == call_id and call_id:
                return at
        return None

    # History.

    def _restore(self, entry: Fields) -> None:
        text, role = wire.text(entry, "text"), wire.text(entry, "role")
        if role == "tool":
            self.blocks.append(_stored_tool(self._key(), entry))
        elif role == "note":
            self.note(text)
        elif text.strip():
            self._restore_text(text, wire.text(entry, "model") or None, is_user=role == "user")

    def _restore_text(self, text: str, model: str | None, *, is_user: bool) -> None:
        parts = split_text(text)
        for number, part in enumerate(parts):
            if is_user:
                self.blocks.append(UserBlock(self._key(), part, continued=number > 0))
            else:
                self.blocks.append(ReplyBlock(self._key(), part, model, signed=number == len(parts) - 1))

    def _live_blocks(self) -> list[Block]:
        """The blocks of the running turn, from its own message on."""
        if self.running is None:
            return []
        starts = [i for i, block in enumerate(self.blocks) if isinstance(block, UserBlock) and not block.continued]
        return self.blocks[starts[-1] :] if starts else []

    def _meanwhile(self) -> list[Block]:
        """What was answered since the history is known to be outdated, such as a command."""
        return [block for block in self.blocks if self._forgotten and isinstance(block, ReplyBlock)]

    def _drop_stored_copy(self, live: Sequence[Block]) -> None:
        """The running turn's message is stored before it runs; what is on the screen already counts."""
        if not live:
            return
        for at in range(len(self.blocks) - 1, -1, -1):
            block = self.blocks[at]
            if isinstance(block, UserBlock) and not block.continued:
                if isinstance(live[0], UserBlock) and block.text == live[0].text:
                    del self.blocks[at:]
                return

    def _key(self) -> str:
        self._numbers += 1
        return f"{self.session}.{self._numbers}"


def _stored_tool(key: str, entry: Fields) -> ToolBlock:
    state = "failed" if entry.get("ok") is False else "ok"
    return ToolBlock(key, "", wire.text(entry, "tool"), wire.text(entry, "arguments"), state, wire.text(entry, "text"))
