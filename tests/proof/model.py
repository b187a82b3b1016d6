"""What must be true of the gateway, as a fold over what was done to it and what it did. Knows none of its code.

The machine says what it is about to do, then hands over what was seen, in the order in which it happened. Whatever
breaks a promise raises `Broken`, which names it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from fermix.message import ConversationKey, Message

MARK = "(possible duplicate) "
MINUTE_S = 60.0
DAY_S = 86_400.0
MOST_STARTS = 2
COMMANDS = frozenset({"help", "whoami", "new", "clear", "stop", "confirm", "deny", "grant"})
IN_PERSON = frozenset({"new", "clear", "stop"})


class Promise(StrEnum):
    STRANGERS = "who may not write reaches nothing"
    FRESH = "a message is taken once"
    KEPT = "what was acknowledged is on disk, what was not is not"
    ALONE = "a conversation has one turn at a time"
    ORDER = "a conversation keeps its order"
    OUTCOME = "every message has one outcome"
    SAID_ONCE = "nothing is said twice without saying so"
    STOPPED = "what was stopped says nothing more"
    ONLY_A_STOP = "nothing but a stop stops"
    EFFECT = "what had an effect is not run again"
    RIGHTS = "no right grows"
    ASKED_ONCE = "an approval counts once"
    ASKED_HERE = "an approval counts where it was asked"
    IN_TIME = "an approval counts for a minute, in the life that asked"
    BURNT = "a wrong answer burns nothing"
    ALIVE = "the gateway lives"


class Broken(AssertionError):
    def __init__(self, promise: Promise, what: object) -> None:
        super().__init__(f"{promise}: {what}")
        self.promise = promise


class Standing(NamedTuple):
    """`commands`: may also stop and clear."""

    operator: bool
    commands: bool


OWNER, COMMANDER, GUEST = Standing(True, True), Standing(False, True), Standing(False, False)
# What the two configurations in `world.py` mean; nobody else has any standing.
STANDINGS: Sequence[Mapping[tuple[str, str], Standing]] = (
    {("chat", "1"): OWNER, ("chat", "2"): COMMANDER, ("chat", "3"): GUEST, ("solo", "5"): COMMANDER},
    {("chat", "9"): OWNER, ("chat", "1"): GUEST, ("chat", "2"): GUEST, ("solo", "5"): OWNER},
)

Key = tuple[str, str]


def key_of(message: Message) -> Key:
    return message.channel, message.id


# What is seen.


@dataclass(frozen=True, slots=True)
class Died:
    """A life of the daemon is over, well or badly."""


@dataclass(frozen=True, slots=True)
class Began:
    """A turn began."""

    key: Key
    operator: bool
    attended: bool
    may_ask: bool


@dataclass(frozen=True, slots=True)
class Ended:
    key: Key


@dataclass(frozen=True, slots=True)
class Acted:
    """A turn did something that cannot be taken back."""

    key: Key


@dataclass(frozen=True, slots=True)
class Sending:
    """A call that sends begins."""

    key: Key
    text: str


@dataclass(frozen=True, slots=True)
class Vain:
    """It failed, or seemed to."""

    key: Key


@dataclass(frozen=True, slots=True)
class Landed:
    """A chat shows it."""

    key: Key
    text: str


@dataclass(frozen=True, slots=True)
class Asked:
    """The owner is asked for a folder."""

    id: str
    token: str
    where: tuple[str, str, str, str]
    shared: bool
    folder: str
    at: float
    key: Key


@dataclass(frozen=True, slots=True)
class Withdrawn:
    """It could not be shown, so it does not count."""

    id: str


@dataclass(frozen=True, slots=True)
class Cleared:
    """A conversation was begun afresh."""

    line: ConversationKey


@dataclass(frozen=True, slots=True)
class Downloaded:
    reference: str


Seen = Died | Began | Ended | Acted | Sending | Vain | Landed | Asked | Withdrawn | Cleared | Downloaded


@dataclass
class Heard:
    """A message that was taken. `rank` is its place among all."""

    message: Message
    standing: Standing
    rank: int
    at: float
    outcome: str | None = None
    now: Standing | None = None
    """What its sender is since the last start, where that differs."""
    starts: int = 0
    acted: bool = False
    stopped: bool = False
    stoppable: bool = False
    vain: bool = False
    asked: bool = False
    said: list[str] = field(default_factory=list)

    @property
    def command(self) -> str | None:
        words = self.message.text.split(None, 1)
        name = words[0].removeprefix("/") if words and words[0].startswith("/") else ""
        return name if name in COMMANDS else None

    @property
    def is_turn(self) -> bool:
        shown = self.message.channel == "chat" and self.message.attachments
        return bool(self.message.text.strip() or shown) and self.command is None

    @property
    def operator(self) -> bool:
        return self.standing.operator and (self.now is None or self.now.operator)


@dataclass
class Question:
    """`before` are the folders that were open when it was asked: with others open it asks for something else."""

    asked: Asked
    message: Message
    before: frozenset[str]
    taken: bool = False
    dead: bool = False
    resumes: bool = False


def is_final(text: str) -> bool:
    """Whether a text is the last word on its message: no question, and no word in between."""
    return not text.removeprefix(MARK).startswith(("May I change", "word "))


def is_refusal(text: str) -> bool:
    """Whether a text says that a full conversation takes no more: it waits for nobody and no stop ends it."""
    return text.removeprefix(MARK).startswith("Too many")


class Model:
    """The state that follows from what was seen."""

    def __init__(self) -> None:
        self.config = 0
        self.at = 0.0
        self.heard: dict[Key, Heard] = {}
        self.questions: list[Question] = []
        self.folders: set[str] = set()
        self._running: dict[ConversationKey, Key] = {}
        self._last_start: dict[ConversationKey, int] = {}
        self._last_answer: dict[ConversationKey, int] = {}
        self._begun: set[Key] = set()
        self._just_begun: list[Key] = []
        self._on_the_wire: set[Key] = set()
        self._saying: Message | None = None
        self._fresh = False
        self._was_written: list[Heard] = []
        self._died_now = False
        self.unwritten = False
        """Whether the ledger failed once: what could not be written down comes late."""
        self._take: dict[type, Callable[..., None]] = {
            Died: self._died, Began: self._began, Ended: self._ended, Acted: self._acted, Sending: self._sending,
            Vain: self._vain, Landed: self._landed, Asked: self._asked, Withdrawn: self._withdrawn,
            Cleared: self._cleared, Downloaded: self._downloaded,
        }  # fmt: skip

    # Who may what.

    def standing(self, message: Message) -> Standing | None:
        if message.channel == "cli":
            return OWNER
        return STANDINGS[self.config].get((message.channel, (message.sender.id or "").strip()))

    def asks_something(self, message: Message) -> bool:
        whole = all(
            text.strip()
            for text in (message.id, message.channel, message.chat_id, message.reply_target, message.thread)
        )
        return whole and message.kind not in ("reaction", "join") and self.standing(message) is not None

    # What is done to it.

    def say(self, message: Message) -> None:
        """It is about to be said."""
        known = self.heard.get(key_of(message))
        old = known is not None and known.outcome is not None and self.at - known.at >= DAY_S
        self._saying = message
        self._fresh = self.asks_something(message) and (known is None or old)

    def heard_back(self, *, acknowledged: int, refused: int, cut: bool) -> None:
        """How its platform was answered, after all that was seen of it."""
        written = any(one.message is self._saying for one in self._was_written)
        if self._fresh and acknowledged and not written:
            raise Broken(Promise.KEPT, f"{self._saying} was acknowledged and is not there")
        if refused and not acknowledged and not cut and written:
            raise Broken(Promise.KEPT, f"{self._saying} was refused and is there")
        self._saying = None

    def stop_one(self, key: Key, *, surely: bool) -> None:
        """One message was stopped by a client."""
        self._mark(self.heard[key], surely=surely)

    # What is seen.

    def look(self, rows: Mapping[Key, tuple[int, str | None]], bodies: Callable[[Key], Message],
             seen: Sequence[Seen], folders: set[str], *, cut: bool) -> None:  # fmt: skip
        """Judge one step: the ledger's rows and the open folders as they are after it, and what happened in it."""
        self._was_written = []
        self._just_begun.clear()
        for key, (rank, _) in sorted(rows.items(), key=lambda row: row[1][0]):
            if key not in self.heard or self.heard[key].rank != rank:
                self._written(key, rank, bodies)
        for one in seen:
            self._take[type(one)](one)
        for key, (_, outcome) in rows.items():
            self._settled(self.heard[key], outcome)
        self._granted(folders - self.folders, cut=cut)
        self.folders = set(folders)
        for heard in self._was_written:
            if heard.command == "stop":
                self._stop(heard)
        for question in self.questions:
            question.dead = question.dead or self._died_now
        self._died_now = False

    def finish(self, in_history: set[str]) -> None:
        """All was let go and enough time has passed."""
        for heard in self.heard.values():
            if heard.outcome is None:
                raise Broken(Promise.OUTCOME, f"{heard} never had one")
            answered = heard.outcome == "answered" and any(text.startswith("answer") for text in heard.said)
            if answered and not heard.vain and not self.unwritten and heard.message.id not in in_history:
                raise Broken(Promise.KEPT, f"the answer to {heard} is not in the history")

    def _written(self, key: Key, rank: int, bodies: Callable[[Key], Message]) -> None:
        saying = self._saying
        if saying is None or key_of(saying) != key:
            saying = self._resumed(bodies(key))
        elif self.standing(saying) is None or not self.asks_something(saying):
            raise Broken(Promise.STRANGERS, f"{saying} was written down")
        elif not self._fresh or any(one.message is saying for one in self._was_written):
            raise Broken(Promise.FRESH, f"{saying} was taken again")
        standing = self.standing(saying)
        if standing is None:
            raise Broken(Promise.RIGHTS, f"{saying} came back and its sender may not write")
        self._begun.discard(key)
        self.heard[key] = Heard(saying, standing, rank, self.at)
        self._was_written.append(self.heard[key])

    def _resumed(self, message: Message) -> Message:
        """Find the request that runs again after a yes."""
        for question in self.questions:
            asked = question.message
            if question.resumes and (asked.text, asked.key, asked.sender) == (
                message.text,
                message.key,
                message.sender,
            ):
                question.resumes = False
                return message
        why_not: Promise | None = Promise.RIGHTS
        if (answer := self._answer()) is not None and answer[2]:
            why_not = self._why_not(*answer[:2])
        if why_not is not None:
            raise Broken(why_not, f"nobody sent {message}")
        return message

    def _died(self, _: Died) -> None:
        self._running.clear()
        self._last_start.clear()
        self._begun.clear()
        self._died_now = True
        for key in self._just_begun:  # that they began may not be on disk
            self.heard[key].starts -= 1
        self._just_begun.clear()
        for key in self._on_the_wire:
            self.heard[key].vain = True
        for heard in self.heard.values():
            heard.now = self.standing(heard.message) or GUEST

    def _turn(self, key: Key) -> Heard:
        if key not in self.heard:
            raise Broken(Promise.STRANGERS, f"{key} reached the agent or the platform")
        return self.heard[key]

    def _began(self, turn: Began) -> None:
        heard = self._turn(turn.key)
        line = heard.message.key
        if (other := self._running.get(line)) is not None:
            raise Broken(Promise.ALONE, f"{turn.key} beside {other}")
        if turn.key in self._begun or not heard.is_turn:
            raise Broken(Promise.FRESH, f"{turn.key} began again")
        if heard.rank <= self._last_start.get(line, 0):
            raise Broken(Promise.ORDER, f"{turn.key} began late")
        self._may_begin(heard)
        self._may_hold(turn, heard)
        heard.starts += 1
        self._running[line], self._last_start[line] = turn.key, heard.rank
        self._begun.add(turn.key)
        self._just_begun.append(turn.key)

    def _may_begin(self, heard: Heard) -> None:
        if heard.acted or (heard.starts >= MOST_STARTS and not self.unwritten):
            raise Broken(Promise.EFFECT, f"{heard} began again")
        if heard.stopped:
            raise Broken(Promise.STOPPED, f"{heard} began")
        if heard.outcome is not None:
            raise Broken(Promise.OUTCOME, f"{heard} began after its end")
        if any(is_final(text) for text in heard.said):
            raise Broken(Promise.SAID_ONCE, f"{heard} began after its answer")

    def _may_hold(self, turn: Began, heard: Heard) -> None:
        origin = heard.message.origin
        attended = origin is None or origin.attended
        allowed = (heard.operator, attended, heard.operator and attended)
        if (turn.operator, turn.attended, turn.may_ask) != allowed:
            raise Broken(Promise.RIGHTS, f"{turn} where {allowed} was right")

    def _ended(self, turn: Ended) -> None:
        self._running.pop(self._turn(turn.key).message.key, None)

    def _acted(self, turn: Acted) -> None:
        heard = self._turn(turn.key)
        if not heard.operator:
            raise Broken(Promise.RIGHTS, f"{heard} had an effect")
        heard.acted = True

    def _sending(self, call: Sending) -> None:
        heard = self._turn(call.key)
        if heard.stopped and not is_refusal(call.text):
            raise Broken(Promise.STOPPED, f"{call} of {heard}")
        self._on_the_wire.add(call.key)

    def _vain(self, call: Vain) -> None:
        self._turn(call.key).vain = True

    def _landed(self, reply: Landed) -> None:
        heard = self._turn(reply.key)
        text, line = reply.text, heard.message.key
        self._on_the_wire.discard(reply.key)
        if text.startswith("May I change"):
            return
        marked = text.startswith(MARK)
        finals = [said for said in heard.said if is_final(said) and said.startswith(MARK) == marked]
        if text in heard.said or (finals and is_final(text)):
            raise Broken(Promise.SAID_ONCE, f"{text!r} for {heard}")
        heard.said.append(text)
        if heard.is_turn and not is_refusal(text) and not self.unwritten:
            if heard.rank < self._last_answer.get(line, 0):
                raise Broken(Promise.ORDER, f"{text!r} came late")
            self._last_answer[line] = heard.rank

    def _settled(self, heard: Heard, outcome: str | None) -> None:
        if outcome == heard.outcome:
            return
        if heard.outcome is not None:
            raise Broken(Promise.OUTCOME, f"{heard} is now {outcome}")
        if outcome == "stopped" and not heard.stoppable and not self._stops_now(heard):
            raise Broken(Promise.ONLY_A_STOP, heard)
        quiet = outcome in ("stopped", "refused") or (outcome == "failed" and heard.message.attachments)
        told = quiet or heard.asked or any(is_final(text) for text in heard.said)
        if not told and not heard.vain and not self.unwritten:
            raise Broken(Promise.OUTCOME, f"{heard} is {outcome} and nobody was told")
        heard.outcome = outcome

    # Stops.

    def _stops_now(self, heard: Heard) -> bool:
        return any(heard in self._scope(one) for one in self._was_written if one.command == "stop")

    def _scope(self, stop: Heard) -> list[Heard]:
        """What a stop may end."""
        if not self._may_command(stop):
            return []
        everything = stop.operator and (stop.message.origin is None or stop.message.text.endswith(" all"))
        others = [heard for heard in self.heard.values() if heard.rank < stop.rank]
        return [heard for heard in others if everything or heard.message.key == stop.message.key]

    def _stop(self, stop: Heard) -> None:
        for heard in self._scope(stop):
            self._mark(heard, surely=not self._was_left(heard))

    def _was_left(self, heard: Heard) -> bool:
        """Whether its turn is over and its answer could not be written: no stop reaches it before the next start."""
        key = key_of(heard.message)
        return self.unwritten and key in self._begun and self._running.get(heard.message.key) != key

    def _mark(self, heard: Heard, *, surely: bool) -> None:
        if heard.outcome in (None, "stopped"):
            heard.stoppable = True
            heard.stopped = heard.stopped or (surely and heard.is_turn)

    def _may_command(self, heard: Heard) -> bool:
        origin = heard.message.origin
        return heard.standing.commands and (origin is None or origin.attended)

    # Approvals and other commands.

    def _asked(self, asked: Asked) -> None:
        heard = self._turn(asked.key)
        if not heard.operator:
            raise Broken(Promise.RIGHTS, f"{heard} asked the owner")
        heard.asked = True
        self.questions.append(Question(asked, heard.message, frozenset(self.folders)))

    def _withdrawn(self, gone: Withdrawn) -> None:
        self.questions = [question for question in self.questions if question.asked.id != gone.id]

    def _answer(self) -> tuple[Heard, Question, bool] | None:
        """The answer that was given in this step, with its question, and whether it is a yes."""
        for heard in self._was_written:
            if heard.command in ("confirm", "deny"):
                code = heard.message.text.split()[-1]
                for question in self.questions:
                    if code.upper() == question.asked.token or code.lower() == question.asked.id:
                        return heard, question, heard.command == "confirm"
        return None

    def _why_not(self, heard: Heard, question: Question) -> Promise | None:
        """Why an answer does not count, None when it does."""
        message, asked = heard.message, question.asked
        if not heard.operator or (message.origin is not None and not message.origin.attended):
            return Promise.RIGHTS
        if question.taken:
            return Promise.ASKED_ONCE
        if question.dead or self.at - asked.at >= MINUTE_S:
            return Promise.IN_TIME
        by_id = message.text.split()[-1].lower() == asked.id
        where = (*message.key, (message.sender.id or "").strip())
        if where == asked.where:
            here = not by_id or message.kind == "button"
        else:
            own_chat = message.private and (where[0], where[3]) == (asked.where[0], asked.where[3])
            here = by_id and asked.shared and (message.origin is not None or own_chat)
        return None if here else Promise.ASKED_HERE

    def _granted(self, folders: set[str], *, cut: bool) -> None:
        answer = self._answer()
        if answer is None:
            if folders:
                raise Broken(Promise.RIGHTS, f"{folders} opened by itself")
            return
        heard, question, yes = answer
        why_not = self._why_not(heard, question)
        if why_not is not None and any("Nothing was changed" in text for text in heard.said):
            raise Broken(why_not, f"{heard} was a valid no")
        expected = why_not is None and yes and question.before == self.folders
        if expected and not folders and not cut:
            raise Broken(Promise.BURNT, f"{heard} did nothing")
        if folders and not (yes and folders == {question.asked.folder} and question.before == self.folders):
            raise Broken(Promise.RIGHTS, f"{folders} opened by {heard}")
        if folders and why_not is not None:
            raise Broken(why_not, f"{folders} opened by {heard}")
        if why_not is None:
            question.taken = True
            question.resumes = bool(folders) and question.message.origin is None and not self._came_back(question)

    def _came_back(self, question: Question) -> bool:
        asked = question.message
        return any(
            one.message.id.startswith("resumed-") and one.message.text == asked.text for one in self._was_written
        )

    def _cleared(self, cleared: Cleared) -> None:
        by = [heard for heard in self._was_written if heard.command in ("new", "clear")]
        if not by or by[0].message.key != cleared.line or self._died_now:
            raise Broken(Promise.FRESH, f"{cleared} again")
        if not by[0].standing.commands:
            raise Broken(Promise.RIGHTS, f"{cleared} by {by[0]}")

    def _downloaded(self, one: Downloaded) -> None:
        if one.reference.startswith("strange"):
            raise Broken(Promise.STRANGERS, f"{one}")
