"""Who may speak and who may command, as data: the rules of Ingress and trust, each against each channel.

A rule states what stands in the channel's section of config.toml and who writes; ids are made for the platform.
`test_authorize.py` walks the table through `Authorizer` and through `Gateway.ingest`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from fermix.channels.catalog import CHANNELS
from fermix.gateway.settings import ChannelSpec, UserSettings

Verdict = Literal["operator", "guest", "commander", "nobody", "unknown"]
"""A commander is a guest who may run commands that change something."""


@dataclass(frozen=True, slots=True)
class Ids:
    """Ids that a platform could give, and the key of its list."""

    owner: str
    guest: str
    stranger: str
    foreign: str
    """The owner's id on another platform."""
    list_key: str


@dataclass(frozen=True, slots=True, eq=False)
class Rule:
    """One line. `section` holds TOML values by key, the key "list" being the platform's; texts name ids in braces.
    `only` are the channels on which this can be written at all, () for every remote one.
    """

    number: int
    what: str
    section: Mapping[str, str]
    sender: str | None
    verdict: Verdict
    name: str = "Jo"
    enabled: bool = True
    only: tuple[str, ...] = field(default=())


LOCAL = ("cli", "daemon")
FAKE = ChannelSpec("fake", UserSettings, re.compile(r"[1-9][0-9]{0,18}"), "123456789")
SPECS: Mapping[str, ChannelSpec] = {spec.name: spec for spec in (*CHANNELS, FAKE)}
UNKNOWN = (
    "matrix",
    "CLI",
    "Telegram",
    " telegram",
    "telegram ",
    "cli\u200b",
    "ｃｌｉ",
    "fermix_channels.telegram",
    "*",
)

_TELEGRAM = ("123456789", "987654321", "555555555", "175928847299117063", "allowed_user_ids")
IDS: Mapping[str, Ids] = {
    "telegram": Ids(*_TELEGRAM),
    "fake": Ids(*_TELEGRAM),
    "whatsapp": Ids("4915112345678", "15550001111", "447700900123", "123456789", "allowed_sender_ids"),
    "discord": Ids("175928847299117063", "80351110224678912", "210987654321098765", "123456789", "allowed_user_ids"),
    "slack": Ids("T0AB12CD3+U0EF45GH6", "T0AB12CD3+U0000AAAA", "T0AB12CD3+U0000BBBB", "U0EF45GH6", "allowed_user_ids"),
    "signal": Ids(
        "0c9f2b1e-8d47-4c5a-9a3e-1f6b7d2e8a90",
        "11111111-2222-3333-4444-555555555555",
        "99999999-2222-3333-4444-555555555555",
        "+4915112345678",
        "allowed_sender_ids",
    ),
}

OWNER, LISTED, BOTH = '"{owner}"', '["{guest}"]', {"owner_user_id": '"{owner}"', "list": '["{guest}"]'}
LOOK_ALIKES = (
    ("in full-width characters", "{wide}"),
    ("with a zero-width space", "{owner}\u200b"),
    ("with a byte order mark", "\ufeff{owner}"),
    ("with a direction mark", "\u202e{owner}"),
    ("with a soft hyphen", "{owner_head}\u00ad{owner_tail}"),
    ("with a NUL", "{owner}\0"),
    ("with a leading zero", "0{owner}"),
    ("with a plus sign", "+{owner}"),
    ("with a minus sign", "-{owner}"),
    ("with a fraction", "{owner}.0"),
    ("with an exponent", "{owner}e0"),
    ("with an underscore between", "{owner_head}_{owner_tail}"),
    ("with a space between", "{owner_head} {owner_tail}"),
    ("cut short", "{owner_head}"),
    ("as the end of it", "{owner_tail}"),
    ("as the first of two", "{owner},{guest}"),
    ("as the first of two lines", "{owner}\n{guest}"),
    ("in quotes", '"{owner}"'),
    ("in brackets", '["{owner}"]'),
    ("as a mention", "@{owner}"),
    ("as a pattern", "{owner_head}*"),
    ("as anything", ".*"),
)

RULES: tuple[Rule, ...] = (
    # Rule 3: no sender.
    Rule(3, "no sender", BOTH, None, "nobody"),
    Rule(3, "an empty sender", BOTH, "", "nobody"),
    Rule(3, "a blank sender", BOTH, " \t\u2003\n", "nobody"),
    Rule(3, "no sender beside a blank owner", {"owner_user_id": '""', "list": LISTED}, None, "nobody"),
    Rule(3, "a blank sender beside a blank owner and a blank entry", {"owner_user_id": '" "', "list": '[" "]'}, " ",
         "nobody"),
    Rule(3, "a sender called None where no owner is set", {"list": LISTED}, "None", "nobody"),
    # Rule 4: the explicit owner, and nobody but the explicit one.
    Rule(4, "the owner", BOTH, "{owner}", "operator"),
    Rule(4, "the owner alone, the list missing", {"owner_user_id": OWNER}, "{owner}", "operator"),
    Rule(4, "the owner beside an empty list", {"owner_user_id": OWNER, "list": "[]"}, "{owner}", "operator"),
    Rule(4, "the owner who is listed too", {"owner_user_id": OWNER, "list": '["{owner}", "{guest}"]'}, "{owner}",
         "operator"),
    Rule(4, "the owner beside a wildcard", {"owner_user_id": OWNER, "list": '["*"]'}, "{owner}", "operator"),
    Rule(4, "the owner with blanks around", BOTH, " {owner}\n", "operator"),
    Rule(4, "the owner written with blanks around", {"owner_user_id": '"\\t{owner} "'}, "{owner}", "operator"),
    Rule(4, "the owner under any name", BOTH, "{owner}", "operator", name="Mallory"),
    # Rule 5: the list makes guests, never operators.
    Rule(5, "a guest", BOTH, "{guest}", "guest"),
    Rule(5, "a guest with blanks around", BOTH, "\u00a0{guest} ", "guest"),
    Rule(5, "a guest written with blanks around", {"owner_user_id": OWNER, "list": '[" {guest}\\n"]'}, "{guest}",
         "guest"),
    Rule(5, "a guest who calls himself by the owner's id", BOTH, "{guest}", "guest", name="{owner}"),
    Rule(5, "a guest on the command list", {**BOTH, "command_allowlist": LISTED}, "{guest}", "commander"),
    Rule(5, "a guest beside somebody on the command list", {**BOTH, "command_allowlist": '["{stranger}"]'}, "{guest}",
         "guest"),
    Rule(5, "a guest beside a wildcard for commands", {**BOTH, "command_allowlist": '["*"]'}, "{guest}", "guest"),
    Rule(5, "the sole entry without an owner", {"list": LISTED}, "{guest}", "commander"),
    Rule(5, "the sole entry, written twice", {"list": '["{guest}", " {guest}"]'}, "{guest}", "commander"),
    Rule(5, "the sole entry beside a blank owner", {"owner_user_id": '" "', "list": LISTED}, "{guest}", "commander"),
    Rule(5, "one of two entries without an owner", {"list": '["{guest}", "{owner}"]'}, "{guest}", "guest"),
    Rule(5, "the other of two entries without an owner", {"list": '["{guest}", "{owner}"]'}, "{owner}", "guest"),
    Rule(5, "one of two entries on the command list", {"list": '["{guest}", "{owner}"]', "command_allowlist": LISTED},
         "{guest}", "commander"),
    Rule(5, "the sole entry beside a wildcard", {"list": '["{guest}", "*"]'}, "{guest}", "guest"),
    Rule(5, "the sole entry beside an owner who is only a name", {"owner_user_id": '"@jo"', "list": LISTED}, "{guest}",
         "guest"),
    # Rule 6: anybody else.
    Rule(6, "a stranger", BOTH, "{stranger}", "nobody"),
    Rule(6, "a stranger who calls himself by the owner's id", BOTH, "{stranger}", "nobody", name="{owner}"),
    Rule(6, "the owner's id of another platform", BOTH, "{foreign}", "nobody"),
    Rule(6, "on the command list only", {"owner_user_id": OWNER, "command_allowlist": '["{stranger}"]'}, "{stranger}",
         "nobody"),
    Rule(6, "anybody where neither owner nor list is set", {}, "{owner}", "nobody"),
    Rule(6, "anybody beside an empty list", {"list": "[]"}, "{guest}", "nobody"),
    Rule(6, "anybody beside a wildcard", {"list": '["*"]'}, "{stranger}", "nobody"),
    Rule(6, "anybody beside an owner who is a wildcard", {"owner_user_id": '"*"'}, "{stranger}", "nobody"),
    Rule(6, "the wildcard itself", {"owner_user_id": '"*"', "list": '["*"]'}, "*", "nobody"),
    Rule(6, "a name on the list", {"list": '["@jo", "jo"]'}, "@jo", "nobody"),
    Rule(6, "the owner of a channel that is off", BOTH, "{owner}", "nobody", enabled=False),
    Rule(6, "a guest of a channel that is off", BOTH, "{guest}", "nobody", enabled=False),
    Rule(6, "the owner in small letters", BOTH, "{small}", "nobody", only=("slack",)),
    Rule(6, "the owner in capitals", BOTH, "{capitals}", "nobody", only=("signal",)),
    Rule(6, "the owner of another team", BOTH, "T9999ZZZZ+U0EF45GH6", "nobody", only=("slack",)),
    *(Rule(6, f"the owner's id {how}", BOTH, text, "nobody") for how, text in LOOK_ALIKES),
)  # fmt: skip


def rules_for(channel: str) -> tuple[Rule, ...]:
    return tuple(rule for rule in RULES if not rule.only or channel in rule.only)


def filled(text: str, channel: str) -> str:
    """Put the ids of a platform into a text of the table."""
    ids = IDS[channel]
    words = {
        "owner": ids.owner, "guest": ids.guest, "stranger": ids.stranger, "foreign": ids.foreign,
        "owner_head": ids.owner[:-3], "owner_tail": ids.owner[-3:],
        "small": ids.owner.lower(), "capitals": ids.owner.upper(),
        "wide": "".join(chr(ord(char) + 0xFEE0) if char.isalnum() else char for char in ids.owner),
    }  # fmt: skip
    for word, value in words.items():
        text = text.replace(f"{{{word}}}", value)
    return text


def config_of(rule: Rule, channel: str) -> str:
    """Write the section that a rule states."""
    keys = {IDS[channel].list_key if key == "list" else key: value for key, value in rule.section.items()}
    lines = (f"{key} = {filled(value, channel)}" for key, value in keys.items())
    return "\n".join([f"[{SPECS[channel].section}]", f"enabled = {str(rule.enabled).lower()}", *lines, ""])


Right = Literal["runs", "owner", "person"]
"""It runs (or says what this version lacks), is for the owner alone, or needs a person in front of it."""

WHO = ("owner", "sole entry", "command list", "guest", "local", "local program")
COMMANDS: Mapping[str, tuple[Right, ...]] = {
    "help": ("runs", "runs", "runs", "runs", "runs", "runs"),
    "whoami": ("runs", "runs", "runs", "runs", "runs", "runs"),
    "new": ("runs", "runs", "runs", "owner", "runs", "runs"),
    "compact": ("runs", "runs", "runs", "owner", "runs", "runs"),
    "background": ("runs", "runs", "runs", "owner", "runs", "runs"),
    "tasks": ("runs", "runs", "runs", "owner", "runs", "runs"),
    "pause": ("runs", "runs", "runs", "owner", "runs", "runs"),
    "resume": ("runs", "runs", "runs", "owner", "runs", "runs"),
    "ultra": ("runs", "runs", "runs", "owner", "runs", "runs"),
    "stop": ("runs", "runs", "runs", "owner", "runs", "person"),
    "sandbox": ("runs", "runs", "runs", "owner", "runs", "person"),
    "grant": ("runs", "owner", "owner", "owner", "runs", "person"),
    "revoke": ("runs", "owner", "owner", "owner", "runs", "person"),
    "usage": ("runs", "owner", "owner", "owner", "runs", "runs"),
    "confirm": ("runs", "owner", "owner", "owner", "runs", "person"),
    "deny": ("runs", "owner", "owner", "owner", "runs", "person"),
}
