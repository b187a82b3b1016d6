from __future__ import annotations

from dataclasses import FrozenInstanceError, replace
from datetime import timedelta

import pytest

from fermix.gateway.authorize import REMEMBERED, Access, Authorization, Authorizer, Denial
from fermix.trust import Trust
from tests.fakes.channel import message
from tests.requirements import covers

ACCESS = {
    "cli": Access(local=True),
    "daemon": Access(local=True),
    "telegram": Access(local=False, owner="1", listed=frozenset({"2", "3"}), commanders=frozenset({"3", "5"})),
    "slack": Access(local=False),
    "signal": Access(local=False, owner="9", listed=frozenset()),
    "discord": Access(local=False, listed=frozenset({"*"})),
}
OPERATOR, GUEST = Authorization(Trust.OPERATOR, commands=True), Authorization(Trust.GUEST, commands=False)
COMMANDER = Authorization(Trust.GUEST, commands=True)
NOBODY, UNKNOWN = Denial("unauthorized"), Denial("unknown_channel")


def test_a_verdict_cannot_be_changed_afterwards() -> None:
    """R-6: trust travels in a frozen value."""
    with pytest.raises(FrozenInstanceError):
        GUEST.trust = Trust.OPERATOR  # type: ignore[misc]


@covers("whoami.discovery")
def test_denied_senders_are_kept_for_the_owner_to_look_at() -> None:
    """Issue 3, step 2: a stranger gets no answer even to /whoami, so the owner must be able to see the id."""
    authorizer = Authorizer(ACCESS)
    for sender in ("4", "5", "4", None, "1", "2"):
        authorizer.resolve(message("/whoami", channel="telegram", sender=sender))
    authorizer.resolve(message("hi", channel="matrix", sender="6"))

    assert {(row.channel, row.sender, row.name, row.times) for row in authorizer.denied()} == {
        ("telegram", "4", "Jo", 2),
        ("telegram", "5", "Jo", 1),
    }


def test_a_busy_stranger_pushes_nobody_out_of_another_channel() -> None:
    """R-13: what is kept per remote is bounded, channel by channel."""
    authorizer = Authorizer(ACCESS)
    authorizer.resolve(message("hi", channel="slack", sender="quiet"))
    for number in range(1_000):
        authorizer.resolve(message("hi", channel="discord", sender=f"loud {number}" + "x" * 10_000))

    rows = authorizer.denied()
    assert len(rows) == REMEMBERED + 1
    assert ("slack", "quiet") in {(row.channel, row.sender) for row in rows}
    assert max(len(row.sender) for row in rows) <= 100


def test_who_was_denied_last_is_shown_first() -> None:
    authorizer = Authorizer(ACCESS)
    for hour, channel in enumerate(("slack", "discord", "slack")):
        wrote = message("hi", channel=channel, sender=f"{hour}")
        authorizer.resolve(replace(wrote, received_at=wrote.received_at + timedelta(hours=hour)))

    assert [row.sender for row in authorizer.denied()] == ["2", "1", "0"]


def test_new_rules_hold_from_the_next_message_on() -> None:
    authorizer = Authorizer(ACCESS)
    authorizer.use({"telegram": Access(local=False, owner="2")})

    assert authorizer.resolve(message("hi", channel="telegram", sender="1")) == NOBODY
    assert authorizer.resolve(message("hi", channel="telegram", sender="2")) == OPERATOR
