"""send_attachment and react, called as the loop does."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from fermix.agent.dispatch import Dispatcher
from fermix.agent.exposure import Exposure
from fermix.agent.model import JsonValue, ToolResult
from fermix.agent.registry import CapabilityRegistry, Narrowing
from fermix.agent.tools import messaging
from fermix.agent.turn import Turn, WayBack
from fermix.clock import SystemClock
from fermix.errors import ChannelUnavailable, NeedsOperator
from fermix.events import Events
from fermix.message import File, Reaction, Reply
from fermix.trust import Trust
from tests.agent.tools.conftest import Toolbox
from tests.fakes.turns import RecordingPort, make_call, make_scope, make_turn

PDF = b"%PDF-1.7 a bill"


@pytest.fixture
def port() -> RecordingPort:
    return RecordingPort()


async def test_a_file_goes_out_as_its_bytes_with_the_effect_written_before(
    toolbox: Toolbox, port: RecordingPort
) -> None:
    toolbox.write("bill.pdf", PDF)
    result = await toolbox.call("send_attachment", port=port, path="bill.pdf", caption="June")

    assert result == ToolResult(True, "sent bill.pdf (15 bytes)")
    assert port.sent == [File(PDF, "bill.pdf", "document", "application/pdf", "June")]
    assert port.effects == ["send_attachment"]


async def test_name_kind_and_type_can_be_stated(toolbox: Toolbox, port: RecordingPort) -> None:
    toolbox.write("x", b"\x89PNG")
    stated: dict[str, JsonValue] = {"kind": "image", "filename": "../a\u202e\nb/cat.png", "mime_type": "image/png"}
    await toolbox.call("send_attachment", port=port, path="x", **stated)

    assert port.sent == [File(b"\x89PNG", "cat.png", "image", "image/png")]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"path": "https://example.org/a.pdf"}, "only files on this machine"),
        ({"path": "file:///etc/passwd"}, "only files on this machine"),
        ({"path": "empty"}, "is empty"),
        ({"path": "large"}, "is larger than"),
        ({"path": "missing"}, "cannot be read: No such file"),
        ({"path": "folder"}, "cannot be read: Is a directory"),
        ({"path": "fifo"}, "neither a file nor a folder"),
        ({"path": "/etc/passwd"}, "I may not look into"),
        ({"path": "link"}, "I may not look into"),
        ({"path": "bill.pdf", "kind": "image"}, "cannot be sent as image"),
        ({"path": "bill.pdf", "mime_type": "text/html\nX: y"}, "do not fit"),
        ({"path": "bill.pdf", "kind": "sticker"}, "do not fit"),
    ],
)
async def test_what_is_not_sent(
    toolbox: Toolbox, port: RecordingPort, monkeypatch: pytest.MonkeyPatch, arguments: dict[str, JsonValue], reason: str
) -> None:
    """Reference 4, 4.3: addresses are refused, regular files only, below the roots."""
    monkeypatch.setattr(messaging, "MOST_FILE_BYTES", 100)
    toolbox.write("bill.pdf", PDF)
    toolbox.write("empty", b"")
    toolbox.write("large", b"x" * 101)
    (toolbox.workspace / "folder").mkdir()
    (toolbox.workspace / "link").symlink_to("/etc/passwd")
    os.mkfifo(toolbox.workspace / "fifo")
    result = await toolbox.call("send_attachment", port=port, **arguments)

    assert not result.ok
    assert reason in result.text
    assert (port.sent, port.effects) == ([], [])


@dataclass
class LatePort(RecordingPort):
    """Does something between the judgement and the send."""

    before: Callable[[], Awaitable[None]] | None = None

    async def send(self, reply: Reply) -> None:
        if self.before is not None:
            await self.before()
        await super().send(reply)


async def test_a_path_that_is_swapped_later_gains_nothing(toolbox: Toolbox, tmp_path: Path) -> None:
    """R-30: what was judged is what is sent."""
    toolbox.write("bill.pdf", PDF)
    (tmp_path / "secret").write_bytes(b"secret")

    async def swap() -> None:
        (toolbox.workspace / "bill.pdf").unlink()
        (toolbox.workspace / "bill.pdf").symlink_to(tmp_path / "secret")

    port = LatePort(before=swap)
    await toolbox.call("send_attachment", port=port, path="bill.pdf")

    assert [file.data for file in port.sent if isinstance(file, File)] == [PDF]


async def test_nothing_is_sent_that_cannot_be_written_down_before(toolbox: Toolbox) -> None:
    class FullDisk(RecordingPort):
        async def effect(self, name: str) -> None:
            raise NeedsOperator("the disk is full", advice="free some space")

    toolbox.write("bill.pdf", PDF)
    port = FullDisk()
    for name, arguments in (("send_attachment", {"path": "bill.pdf"}), ("react", {"emoji": "👍"})):
        assert "disk is full" in (await toolbox.call(name, port=port, **arguments)).text
    assert port.sent == []


async def calls(toolbox: Toolbox, port: RecordingPort, count: int) -> list[ToolResult]:
    """The same call several times by one turn, of the same tools."""
    scope = make_scope(*toolbox.tools, port=port)
    dispatcher = Dispatcher(Events(SystemClock()), SystemClock())
    async with asyncio.timeout(5):
        call = make_call("send_attachment", path="bill.pdf")
        return [await dispatcher.dispatch(call, scope) for _ in range(count)]


async def test_the_same_file_is_sent_once_in_a_turn(toolbox: Toolbox, port: RecordingPort) -> None:
    """Reference 3, section 8: a duplicate is a success without a send."""
    toolbox.write("bill.pdf", PDF)
    results = await calls(toolbox, port, 2)

    assert [result.ok for result in results] == [True, True]
    assert "not sent again" in results[1].text
    assert len(port.sent) == 1


async def test_a_later_turn_may_send_the_same_file_again(toolbox: Toolbox, port: RecordingPort) -> None:
    """Whoever asks for a file once more gets it once more."""
    toolbox.write("bill.pdf", PDF)
    (sending,) = (tool for tool in toolbox.tools if tool.name == "send_attachment")
    scopes = [make_scope(sending, turn=make_turn(turn_id=name), port=port) for name in ("t1", "t2", "t2")]
    dispatcher = Dispatcher(Events(SystemClock()), SystemClock())
    async with asyncio.timeout(5):
        call = make_call("send_attachment", path="bill.pdf")
        results = [await dispatcher.dispatch(call, scope) for scope in scopes]

    assert ["not sent again" in result.text for result in results] == [False, False, True]
    assert len(port.sent) == 2


@pytest.mark.parametrize(("landed", "tries"), [(True, 1), (False, 2)])
async def test_a_send_whose_fate_is_unknown_is_not_tried_again(toolbox: Toolbox, landed: bool, tries: int) -> None:
    """DLV: never silently twice; what surely did not arrive may be sent again."""

    class Away(RecordingPort):
        async def send(self, reply: Reply) -> None:
            self.sent.append(reply)
            raise ChannelUnavailable("the line broke", landed=landed)

    toolbox.write("bill.pdf", PDF)
    port = Away()
    first, _ = await calls(toolbox, port, 2)

    assert not first.ok
    assert ("may have arrived or not" in first.text) is landed
    assert len(port.sent) == tries


async def test_a_reaction_goes_to_the_message(toolbox: Toolbox, port: RecordingPort) -> None:
    assert (await toolbox.call("react", port=port, emoji="👍")).ok
    assert port.sent == [Reaction("👍")]
    assert port.effects == ["react"]


def test_both_are_offered_where_the_chat_takes_them(toolbox: Toolbox) -> None:
    """Reference 4, 4.3: react with the emoji of its channel; a guest gets no file of the owner's."""
    registry = CapabilityRegistry(toolbox.tools)

    def offered(trust: Trust, way_back: WayBack) -> dict[str, object]:
        found = registry.list_for(trust, Narrowing(way_back=way_back))
        return {tool.name: tool.parameters["properties"] for tool in found if tool.category == "channel"}

    everything = WayBack(files=True, reactions=("👍", "🎉"))
    assert set(offered(Trust.OPERATOR, everything)) == {"send_attachment", "react"}
    assert offered(Trust.GUEST, everything) == {"react": {"emoji": {"enum": ["👍", "🎉"]}}}
    assert set(offered(Trust.OPERATOR, WayBack(files=True))) == {"send_attachment"}
    assert offered(Trust.OPERATOR, WayBack()) == {}


def in_chat(*, private: bool) -> Turn:
    turn = make_turn()
    return replace(turn, message=replace(turn.message, private=private))


@pytest.mark.parametrize(("private", "sent"), [(True, True), (False, False)])
@pytest.mark.parametrize("now", [True, False])
async def test_after_words_from_outside_a_file_goes_freely_to_the_owner_alone(
    toolbox: Toolbox, port: RecordingPort, private: bool, sent: bool, now: bool
) -> None:
    """R-49: into a chat that others read it needs the owner's yes."""
    toolbox.write("bill.pdf", PDF)
    scope = make_scope(*toolbox.tools, port=port, turn=in_chat(private=private))
    scope = replace(scope, exposure=Exposure(earlier=True))
    if now:
        scope.exposure.read_from("web_fetch")
    async with asyncio.timeout(5):
        call = make_call("send_attachment", path="bill.pdf")
        result = await Dispatcher(Events(SystemClock()), SystemClock()).dispatch(call, scope)

    assert result.ok is sent
    assert ("others read this chat" in result.text) is not sent
    assert len(port.sent) == sent
