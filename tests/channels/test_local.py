from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

import pytest

from fermix.agent.model import Delta, ReasoningDelta, TextDelta, ToolCallDelta
from fermix.channels import local
from fermix.channels.catalog import LOCAL
from fermix.channels.local import LocalChannel, request_directory, to_message
from fermix.errors import Unusable
from fermix.gateway import Authorizer
from fermix.message import LocalOrigin, Media, Message, Reaction, Text
from fermix.trust import Trust
from tests.requirements import covers

AT = datetime(2026, 11, 30, tzinfo=UTC)


class Audience:
    def __init__(self) -> None:
        self.told: list[tuple[str, str, dict[str, object], bool]] = []

    def tell(self, session: str, event: str, params: Mapping[str, object], *, droppable: bool = False) -> None:
        self.told.append((session, event, dict(params), droppable))


def message(*media: Media, text: str = "hi") -> Message:
    return to_message(message_id="m1", session="work", text=text, origin=LocalOrigin(None), media=media, received_at=AT)


def file(data: bytes, *, name: str | None = "note.txt", mime: str = "text/plain") -> Media:
    return Media("file", mime, data, name)


def test_what_is_typed_at_a_local_client_is_read_by_nobody_else() -> None:
    """A channel says so itself: unknown counts as shared."""
    assert message().private


async def test_a_reply_reaches_its_session_whole_and_names_its_model() -> None:
    audience = Audience()
    sent = await LocalChannel(audience).send(message(), Text("Hello", "fake/model"), "k1")

    assert sent == "m1"
    assert audience.told == [
        (
            "work",
            "reply",
            {
                "session": "work",
                "message_id": "m1",
                "text": "Hello",
                "model": "fake/model",
                "key": "k1",
                "waits": False,
            },
            False,
        )
    ]


@pytest.mark.parametrize(
    ("delta", "kind", "text"),
    [
        (TextDelta("He"), "text", "He"),
        (ReasoningDelta("hm"), "reasoning", "hm"),
        (ToolCallDelta("shell"), "tool", "shell"),
    ],
)
def test_deltas_are_shown_as_they_come_and_may_be_dropped(delta: Delta, kind: str, text: str) -> None:
    audience = Audience()
    channel = LocalChannel(audience)
    assert channel.abilities.live is channel
    channel.show(message(), delta)

    params = {"session": "work", "message_id": "m1", "kind": kind, "text": text}
    assert audience.told == [("work", "turn.delta", params, True)]


async def test_what_a_terminal_cannot_show_is_a_mistake_of_ours() -> None:
    with pytest.raises(TypeError, match="Reaction"):
        await LocalChannel(Audience()).send(message(), Reaction("🙂"), "k1")


@covers("auth.rule1.local", "auth.tui-channel")
def test_local_clients_speak_as_cli_and_are_the_owner() -> None:
    """I rules 48: whoever connects, `ask` and the TUI alike, speaks under the channel `cli`."""
    made = message()

    assert (made.channel, made.sender.id, made.key.chat_id, made.thread) == ("cli", "cli", "work", "root")
    verdict = Authorizer(LOCAL).resolve(made)
    assert getattr(verdict, "trust", None) == Trust.OPERATOR


def test_text_files_join_the_text_and_pictures_ride_along() -> None:
    picture = Media("image", "image/png", b"\x89PNG", "dot.png")
    made = message(file("größe".encode()), picture, file(b"", name=None))

    assert made.text == "hi\n\n[attached file note.txt]\ngröße\n\n[attached file file]\n"
    assert made.media == (picture,)


def test_a_file_alone_is_a_message() -> None:
    assert message(file(b"data"), text="").text == "[attached file note.txt]\ndata"


@pytest.mark.parametrize(
    ("media", "says"),
    [
        (file(b"\xff\xfe", name="a.bin", mime="application/octet-stream"), "a.bin is neither a picture nor UTF-8 text"),
        (file(b"a\0b", name="b.bin"), "b.bin is neither a picture nor UTF-8 text"),
        (file(b"x" * (local.MAX_TEXT_ATTACHMENT_BYTES + 1)), "note.txt is longer than 256 KiB"),
    ],
)
def test_what_is_neither_text_nor_picture_is_refused_by_name(media: Media, says: str) -> None:
    with pytest.raises(Unusable, match=says):
        message(media)


def test_a_text_file_up_to_its_bound_passes() -> None:
    assert "x" * local.MAX_TEXT_ATTACHMENT_BYTES in message(file(b"x" * local.MAX_TEXT_ATTACHMENT_BYTES)).text


@pytest.mark.parametrize(
    ("cwd", "expected"), [("{here}", True), ("{here}/file", False), ("relative", False), ("", False), (None, False)]
)
def test_a_working_directory_is_taken_when_it_is_absolute_and_one(
    tmp_path: Path, cwd: str | None, expected: bool
) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    path = cwd.replace("{here}", str(tmp_path)) if cwd else cwd

    assert request_directory(path, Path.is_dir) == (tmp_path if expected else None)


def test_a_user_without_a_name_is_the_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    def nameless() -> str:
        raise KeyError("uid not found")

    monkeypatch.setattr("getpass.getuser", nameless)

    assert message().sender.name == "operator"
