"""What each request does, over the real socket."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from fermix.agent.memory.rows import Note
from fermix.agent.model import AssistantMessage, UserMessage
from fermix.agent.turn import Completed, ReplyPort, Turn
from fermix.channels import local
from fermix.daemon import answers
from fermix.message import ROOT_THREAD, ConversationKey, Media
from fermix.native.sweep import Tree, become_subreaper, children, sweep
from fermix.protocol.frames import encode
from fermix.protocol.methods import MAX_LINE_BYTES, Code
from tests.daemon.house import House
from tests.fakes.channel import completed
from tests.waiting import until


@contextmanager
def opened_files(*paths: Path) -> Iterator[list[int]]:
    descriptors = [os.open(path, os.O_RDONLY | os.O_NONBLOCK) for path in paths]
    try:
        yield descriptors
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


class Listening:
    """An agent's script that keeps the turns it is given."""

    def __init__(self, house: House) -> None:
        self.turns: list[Turn] = []
        house.agent.script = self._take

    async def _take(self, turn: Turn, _port: ReplyPort) -> Completed:
        self.turns.append(turn)
        return completed("ok")


def names(*files: tuple[str, str]) -> list[dict[str, str]]:
    return [{"name": name, "mime": mime} for name, mime in files]


def problem(answer: Mapping[str, Any]) -> tuple[int, str]:
    return answer["error"]["code"], answer["error"]["message"]


async def test_a_message_is_answered_at_once_and_its_turn_told_by_events(house: House) -> None:
    dial = await house.dial()
    await dial.subscribe(["cli"])
    assert (await dial.ask("hi"))["result"] == {}
    ended = await dial.next("turn.ended")

    assert (ended["message_id"], ended["outcome"], ended["input_tokens"]) == ("m1", "completed", 10)
    assert [item["method"] for item in dial.news if "method" in item] == [
        "message.accepted",
        "queue.changed",
        "queue.changed",
        "turn.delta",
        "reply",
        "turn.ended",
    ]


async def test_the_same_id_twice_is_one_message(house: House) -> None:
    dial = await house.dial()
    await dial.subscribe()
    for _ in range(2):
        assert (await dial.ask("hi", id="same"))["result"] == {}
    await dial.ask("hi", id="other")
    await dial.next("turn.ended")
    await dial.next("turn.ended")

    assert house.agent.started == ["same", "other"]


async def test_only_the_sessions_asked_for_are_heard(house: House) -> None:
    dial, everything = await house.dial(), await house.dial()
    await dial.subscribe(["mine"])
    await everything.subscribe()
    await everything.ask("hi", id="a", session="other")
    await everything.next("turn.ended")
    await everything.ask("hi", id="b", session="mine")
    await dial.next("turn.ended")

    assert {item["params"]["session"] for item in dial.news if "method" in item} == {"mine"}


async def test_only_what_a_model_can_look_at_is_a_picture(house: House, tmp_path: Path) -> None:
    """SVG calls itself an image and is text."""
    (tmp_path / "x.svg").write_text("<svg/>", encoding="utf-8")
    listening = Listening(house)
    dial = await house.dial()
    await dial.subscribe()
    with opened_files(tmp_path / "x.svg") as files:
        params = {"id": "m", "session": "cli", "text": "look", "attachments": names(("x.svg", "image/svg+xml"))}
        await dial.request("message.send", params, files=files)
    await dial.next("turn.ended")
    (turn,) = listening.turns

    assert (turn.message.text, turn.message.media) == ("look\n\n[attached file x.svg]\n<svg/>", ())


async def test_files_arrive_whole_in_their_order(house: House, tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_text("größe", encoding="utf-8")
    (tmp_path / "dot.png").write_bytes(b"\x89PNG-data")
    listening = Listening(house)
    dial = await house.dial()
    await dial.subscribe()
    with opened_files(tmp_path / "note.txt", tmp_path / "dot.png") as files:
        params = {"id": "m", "session": "cli", "text": "look"}
        attachments = names(("note.txt", "text/plain"), ("dot.png", "image/png"))
        answer = await dial.request("message.send", {**params, "attachments": attachments}, files=files)
    await dial.next("turn.ended")
    (turn,) = listening.turns

    assert answer["result"] == {}
    assert turn.message.text == "look\n\n[attached file note.txt]\ngröße"
    assert turn.message.media == (Media("image", "image/png", b"\x89PNG-data", "dot.png"),)


@pytest.mark.parametrize(("named", "passed"), [(1, 0), (2, 1), (0, 1), (1, 2), (0, 16)])
async def test_too_few_or_too_many_descriptors_are_refused_and_none_stays_open(
    house: House, tmp_path: Path, named: int, passed: int
) -> None:
    (tmp_path / "secret.txt").write_text("of the first message", encoding="utf-8")
    (tmp_path / "right.txt").write_text("right", encoding="utf-8")
    listening = Listening(house)
    dial = await house.dial()
    await dial.subscribe()
    before = _descriptors()
    params = {"id": "m", "session": "cli", "text": "hi", "attachments": names(*[("a.txt", "text/plain")] * named)}
    with opened_files(*[tmp_path / "secret.txt"] * passed) as files:
        answer = await dial.request("message.send", params, files=files)
    assert problem(answer) == (
        Code.INVALID_PARAMS,
        f"attachments: {named} are named and {passed} descriptors came",
    )
    assert _descriptors() == before
    with opened_files(tmp_path / "right.txt") as files:
        again = {"id": "n", "session": "cli", "text": "", "attachments": names(("right.txt", "text/plain"))}
        assert "result" in await dial.request("message.send", again, files=files)
    await dial.next("turn.ended")

    assert [turn.message.text for turn in listening.turns] == ["[attached file right.txt]\nright"]
    assert _descriptors() == before


async def test_descriptors_of_a_message_that_is_refused_never_reach_the_next(house: House, tmp_path: Path) -> None:
    (tmp_path / "wrong.txt").write_text("wrong", encoding="utf-8")
    dial = await house.dial()
    before = _descriptors()
    with opened_files(tmp_path / "wrong.txt") as files:
        attachments = names(("wrong.txt", "text/plain"))
        bad = {"id": "m", "session": "no spaces", "text": "hi", "attachments": attachments}
        assert problem(await dial.request("message.send", bad, files=files))[0] == Code.INVALID_PARAMS
    assert _descriptors() == before

    assert "0 descriptors came" in problem(await dial.ask("hi", attachments=attachments))[1]


async def test_more_descriptors_than_a_line_may_carry_end_the_connection(house: House, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a", encoding="utf-8")
    before = _descriptors()
    dial = await house.dial()
    with opened_files(tmp_path / "a.txt") as files:
        await dial.send(b'{"pad', files=files * 16)
        await until(lambda: _descriptors() >= before + 18)
        await dial.send(b'": 1', files=files)
    assert await dial.hung_up()
    dial.close()

    await until(lambda: _descriptors() <= before)


async def test_a_pipe_is_no_attachment_and_holds_no_worker(house: House) -> None:
    dial = await house.dial()
    params = {"id": "m", "session": "cli", "text": "hi", "attachments": names(("pipe", "text/plain"))}
    for number in range(6):
        reading, writing = os.pipe()
        try:
            answer = await dial.request("message.send", {**params, "id": f"m{number}"}, files=[reading])
        finally:
            os.close(reading)
            os.close(writing)
        assert problem(answer) == (Code.INVALID_PARAMS, "pipe is not a regular file")


async def test_a_descriptor_that_cannot_be_read_is_named(house: House, tmp_path: Path) -> None:
    writing = os.open(tmp_path / "out.txt", os.O_WRONLY | os.O_CREAT)
    dial = await house.dial()
    params = {"id": "m", "session": "cli", "text": "hi", "attachments": names(("out.txt", "text/plain"))}
    try:
        answer = await dial.request("message.send", params, files=[writing])
    finally:
        os.close(writing)

    assert problem(answer) == (Code.INVALID_PARAMS, "out.txt cannot be read: Bad file descriptor")


async def test_files_have_their_bounds(house: House, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "MAX_ATTACHMENT_BYTES", 2**20)
    (tmp_path / "huge.png").write_bytes(b"x" * (2**20 + 1))
    (tmp_path / "long.txt").write_bytes(b"x" * (256 * 1024 + 1))
    (tmp_path / "blob.bin").write_bytes(b"a\0b")
    dial = await house.dial()
    told: list[str] = []
    for name in ("huge.png", "long.txt", "blob.bin"):
        with opened_files(tmp_path / name) as files:
            params = {"id": name, "session": "cli", "text": "hi", "attachments": names((name, ""))}
            told.append(problem(await dial.request("message.send", params, files=files))[1])

    assert told == [
        "huge.png is larger than 1 MiB",
        "long.txt is longer than 256 KiB; ask me to read it from its path",
        "blob.bin is neither a picture nor UTF-8 text (application/octet-stream)",
    ]
    assert house.agent.started == []


async def test_the_working_directory_travels_when_it_is_one(house: House, tmp_path: Path) -> None:
    listening = Listening(house)
    dial = await house.dial()
    await dial.subscribe()
    folders = (str(tmp_path), "relative", str(tmp_path / "missing"), "/" + "x" * 5_000, "/nul\0", None)
    for number, cwd in enumerate(folders):
        await dial.ask("hi", id=f"m{number}", cwd=cwd)
        await dial.next("turn.ended")
    origins = [turn.message.origin for turn in listening.turns]

    assert [origin.cwd if origin else "none" for origin in origins] == [tmp_path, *[None] * 5]


def _child_that_asks(path: Path) -> subprocess.Popen[bytes]:
    code = (
        "import sys; from fermix.protocol.ask import Connection\n"
        "c = Connection(sys.argv[1], client='child')\n"
        "c.request('message.send', {'id': 'child', 'session': 'cli', 'text': 'from a child'})\n"
    )
    return subprocess.Popen([sys.executable, "-c", code, str(path)])


async def test_a_person_at_the_keyboard_attends_and_a_process_of_the_daemon_does_not(house: House) -> None:
    """A command that the daemon started must not pass for the owner at the keyboard."""
    listening = Listening(house)
    dial = await house.dial()
    await dial.subscribe()
    await dial.ask("from outside")
    await dial.next("turn.ended")
    with _child_that_asks(house.home.daemon_socket) as child:
        await dial.next("turn.ended")
        assert child.wait(5) == 0

    assert [(turn.message.text, turn.attended, turn.trust) for turn in listening.turns] == [
        ("from outside", True, "operator"),
        ("from a child", False, "operator"),
    ]


async def test_stopping_ends_the_running_turn_and_drops_what_waits(house: House) -> None:
    begun = asyncio.Event()

    async def hang(_turn: Turn, _port: ReplyPort) -> Completed:
        begun.set()
        await asyncio.Event().wait()
        raise AssertionError("unreachable")

    house.agent.script = hang
    dial = await house.dial()
    await dial.subscribe()
    for number in range(3):
        await dial.ask(f"text {number}", id=f"m{number}")
    async with asyncio.timeout(5):
        await begun.wait()
    status = (await dial.request("status"))["result"]
    assert (status["turns_running"], status["turns_waiting"]) == (1, 2)
    waiting = [item["params"]["waiting"] for item in dial.news if item.get("method") == "queue.changed"][-1]
    assert waiting == [{"id": "m1", "text": "text 1"}, {"id": "m2", "text": "text 2"}]

    stopped = await dial.request("turn.stop", {"session": "cli", "message_id": "m2"})
    assert stopped["result"] == {"stopped": 0, "dropped": 1}
    assert (await dial.request("turn.stop", {"session": "cli"}))["result"] == {"stopped": 1, "dropped": 1}
    outcomes = {}
    for _ in range(3):
        ended = await dial.next("turn.ended")
        outcomes[ended["message_id"]] = ended["outcome"]
    assert outcomes == {"m0": "cancelled", "m1": "cancelled", "m2": "cancelled"}
    assert (await dial.request("turn.stop", {"session": "cli"}))["result"] == {"stopped": 0, "dropped": 0}


async def test_the_daemon_itself_is_asked_through_its_control(house: House) -> None:
    dial = await house.dial()
    reloaded = await dial.request("config.reload")
    for method in ("model.fetch", "daemon.stop"):
        assert (await dial.request(method))["result"] == {}

    assert reloaded["result"] == {"model": "fake/model", "restart_required": []}
    assert house.control.asked == ["reload", "fetch", "stop"]


async def test_status_tells_everything_the_protocol_names(house: House) -> None:
    from fermix.protocol.methods import Status

    dial = await house.dial()
    status = (await dial.request("status"))["result"]

    assert set(status) == set(Status.__annotations__)
    assert (status["pid"], status["home"], status["overall"]) == (os.getpid(), str(house.home.root), "ready")


async def test_histories_are_listed_and_read(house: House) -> None:
    dial = await house.dial()

    assert (await dial.request("conversation.list"))["result"] == {"conversations": []}
    history = await dial.request("conversation.history", {"session": "never", "limit": 500})
    assert history["result"] == {"entries": []}


async def test_a_history_fits_into_one_line_whatever_it_holds(house: House) -> None:
    """A client refuses a longer line: it would lose the connection and ask again for ever."""
    key = ConversationKey(local.NAME, "long", ROOT_THREAD)
    await house.conversations.append(key, UserMessage("\0" * 3_000_000))
    for number in range(60):
        await house.conversations.append(key, UserMessage("x" * 60_000), AssistantMessage(f"answer {number}"))
    await house.conversations.append(key, UserMessage("y" * 3_000_000), Note("end"))
    dial = await house.dial()
    result = (await dial.request("conversation.history", {"session": "long", "limit": 500}))["result"]
    entries = result["entries"]

    assert len(encode(result)) < MAX_LINE_BYTES
    assert entries[-1]["text"] == "end"
    assert entries[-2]["text"].startswith("yyy")
    assert entries[-2]["text"].endswith("… (+2900000 characters)")
    assert entries[-3]["text"] == "answer 59"
    assert len(entries) > 50


def _descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


REFUSED_TO_PROGRAMS = (
    ("turn.stop", {"session": "cli"}),
    ("config.reload", {}),
    ("daemon.stop", {}),
    *(("message.send", {"id": f"m{number}", "session": "cli", "text": text}) for number, text in enumerate(
        ("/confirm AAAAAAAA", "/deny AAAAAAAA", "/grant path /srv", "/revoke path /srv", "/sandbox mode open", "/stop")
    )),
)  # fmt: skip
PROGRAM = """
import ctypes, json, os, sys
from fermix.protocol.ask import Connection, RequestFailed
path, how, requests = sys.argv[1:]
if how == "orphan":
    if os.fork():
        os._exit(0)
    os.setsid()
    if os.fork():
        os._exit(0)
if how == "confined":
    ctypes.CDLL(None).prctl(38, 1, 0, 0, 0)
connection = Connection(path, client="child")
for method, params in json.loads(requests):
    try:
        print(json.dumps(connection.request(method, params)))
    except RequestFailed as error:
        print(error)
"""


def _program(house: House, how: str, told: Path) -> subprocess.Popen[bytes]:
    argv = [sys.executable, "-c", PROGRAM, str(house.home.daemon_socket), how, json.dumps(REFUSED_TO_PROGRAMS)]
    with told.open("wb") as file:
        return subprocess.Popen(argv, stdout=file)


@pytest.mark.parametrize("how", ["spawned", "orphan", "confined"])
async def test_a_program_without_a_person_neither_stops_nor_sets_up_nor_answers(
    house: House, how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Issue 3, approvals; R-19, R-20: what the agent starts, or what can gain no rights, has no say over it."""
    become_subreaper()  # as the daemon does before its first command
    others, told = children(), tmp_path / "told"
    left = Tree(1 << 21, b"FERMIX_CHILD=x", others)
    if how == "confined":
        monkeypatch.setattr(os, "getpid", lambda: 1 << 30)  # the child is no descendant then
    dial = await house.dial()
    await dial.subscribe()
    with _program(house, how, told) as child:
        replies = [(await dial.next("reply"))["text"] for _ in range(6)]
        await until(lambda: child.poll() is not None)
    await until(lambda: sweep({left: signal.SIGKILL}) == [0] and children() == others)

    refusal = "refused to a program that runs without a person"
    assert [refusal in text for text in replies] == [True] * 6
    assert told.read_text(encoding="utf-8").count(refusal) == 3
    assert (house.control.asked, house.agent.started) == ([], [])


def _files_in(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if not path.name.startswith("memory.db")}


@pytest.mark.parametrize(
    "name", ["../../evil.png", "/etc/cron.d/evil", "a/b", "..", "", "x" * 5_000, "nul\0", "\n[system"]
)
async def test_the_name_of_a_file_is_never_a_path(house: House, tmp_path: Path, name: str) -> None:
    """R-30: it stays data beside the bytes; nothing is stored under it."""
    listening = Listening(house)
    picture = tmp_path / "picture"
    picture.write_bytes(b"\x89PNG\r\n\x1a\n")
    before = _files_in(tmp_path)
    dial = await house.dial()
    await dial.subscribe()
    params = {"id": "m1", "session": "cli", "text": "look", "attachments": names((name, "image/png"))}
    with opened_files(picture) as files:
        assert "result" in await dial.request("message.send", params, files=files)
    await dial.next("turn.ended")

    assert [media.name for media in listening.turns[0].message.media] == [name]
    assert _files_in(tmp_path) == before
