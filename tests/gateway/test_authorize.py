from __future__ import annotations

import pytest

from fermix.gateway.authorize import Access, Authorization, Authorizer, Denial
from fermix.trust import Trust
from tests.fakes.channel import message
from tests.requirements import covers

ACCESS = {
    "cli": Access(local=True),
    "daemon": Access(local=True),
    "telegram": Access(local=False, owner="1", listed=frozenset({"2", "3"})),
    "slack": Access(local=False),
    "signal": Access(local=False, owner="9", listed=frozenset()),
    "discord": Access(local=False, listed=frozenset({"*"})),
}
OPERATOR, GUEST = Authorization(Trust.OPERATOR), Authorization(Trust.GUEST)
NOBODY, UNKNOWN = Denial("unauthorized"), Denial("unknown_channel")


@covers(
    "auth.rule1.local", "auth.rule2.unknown-channel", "auth.rule3.no-sender", "auth.rule4.owner", "auth.rule5.listed",
    "auth.rule6.otherwise", "auth.no-allow-all", "owner.friend-stays-guest", "trust.two-levels", "failclosed.inert",
)  # fmt: skip
@pytest.mark.parametrize(
    ("channel", "sender", "verdict"),
    [
        ("cli", "cli", OPERATOR),
        ("cli", None, OPERATOR),
        ("daemon", "x", OPERATOR),
        ("matrix", "1", UNKNOWN),
        ("CLI", "cli", UNKNOWN),
        ("telegram", None, NOBODY),
        ("telegram", "  ", NOBODY),
        ("telegram", "1", OPERATOR),
        ("telegram", " 1 ", OPERATOR),
        ("telegram", "2", GUEST),
        ("telegram", "4", NOBODY),
        ("signal", "9", OPERATOR),
        ("slack", "1", NOBODY),
        ("discord", "7", NOBODY),
    ],
)
def test_the_six_rules_in_their_order(channel: str, sender: str | None, verdict: Authorization | Denial) -> None:
    """Ingress and trust, authorization rules: the table, first match wins."""
    got = Authorizer(ACCESS).resolve(message("hi", channel=channel, sender=sender))

    assert got == verdict
