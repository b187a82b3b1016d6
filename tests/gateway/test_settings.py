"""From `[fermix_channels.<name>]` in config.toml to who may speak."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from fermix.channels.catalog import CHANNELS, access_rules
from fermix.config.model import Config
from fermix.errors import ConfigError
from fermix.gateway.authorize import Access, Authorizer
from fermix.home import Home
from fermix.setup.sections import load_config
from fermix.trust import Trust
from tests.fakes.channel import message
from tests.requirements import covers

IDS = {
    "telegram": ("123456789", "987654321"),
    "whatsapp": ("4915112345678", "15550001111"),
    "discord": ("175928847299117063", "80351110224678912"),
    "slack": ("T0AB12CD3+U0EF45GH6", "T0AB12CD3+U0000AAAA"),
    "signal": ("0c9f2b1e-8d47-4c5a-9a3e-1f6b7d2e8a90", "11111111-2222-3333-4444-555555555555"),
}
LISTS = {
    "telegram": "allowed_user_ids",
    "whatsapp": "allowed_sender_ids",
    "discord": "allowed_user_ids",
    "slack": "allowed_user_ids",
    "signal": "allowed_sender_ids",
}
EVERY_CHANNEL = pytest.mark.parametrize("name", LISTS)


def read(tmp_path: Path, text: str, **environ: str) -> Config:
    home = Home(tmp_path)
    home.config.write_text(text, encoding="utf-8")
    return load_config(home, environ)


def section(name: str, **keys: str) -> str:
    lines = (f"{key} = {value}" for key, value in keys.items())
    return "\n".join([f"[fermix_channels.{name}]", "enabled = true", *lines])


def access(tmp_path: Path, name: str, **keys: str) -> Access:
    return access_rules(read(tmp_path, section(name, **keys)))[name]


def test_every_channel_has_its_ids_in_this_table() -> None:
    assert {spec.name for spec in CHANNELS} == set(LISTS) == set(IDS)
    assert all(spec.id_form.fullmatch(spec.id_example) for spec in CHANNELS)


@covers("config.list-key.names", "owner.explicit-only-for-trust")
@EVERY_CHANNEL
def test_owner_and_guests_come_from_the_keys_of_the_platform(tmp_path: Path, name: str) -> None:
    """Ingress and trust, ingress allowlist config keys; the owner needs no entry in the list."""
    owner, guest = IDS[name]
    keys = {"owner_user_id": f'" {owner} "', LISTS[name]: f'["{guest}"]', "command_allowlist": f'["{guest}"]'}

    assert access(tmp_path, name, **keys) == Access(
        local=False, owner=owner, listed=frozenset({guest}), commanders=frozenset({owner, guest})
    )


@EVERY_CHANNEL
def test_the_key_of_another_platform_is_refused_with_its_place(tmp_path: Path, name: str) -> None:
    other = "allowed_sender_ids" if LISTS[name] == "allowed_user_ids" else "allowed_user_ids"
    with pytest.raises(ConfigError, match=rf"fermix_channels.{name}.{other}: line 3: unknown key"):
        read(tmp_path, section(name, **{other: "[]"}))


@EVERY_CHANNEL
@pytest.mark.parametrize("key", ["owner_user_id", "list", "command_allowlist"])
def test_an_id_without_quotes_is_refused(tmp_path: Path, name: str, key: str) -> None:
    """Reference 3, section 11.5: the original dropped it without a word."""
    key = LISTS[name] if key == "list" else key
    value = "123456789" if key == "owner_user_id" else "[123456789]"
    with pytest.raises(ConfigError, match='an id is written in quotes, like "123456789"'):
        read(tmp_path, section(name, **{key: value}))


@covers("failclosed.inert", "auth.no-allow-all")
@EVERY_CHANNEL
@pytest.mark.parametrize("entry", ["*", "@jo", "jo", "all", "", " ", "1*", "12 34"])
def test_a_wildcard_or_a_name_lets_nobody_in(
    tmp_path: Path, name: str, entry: str, caplog: pytest.LogCaptureFixture
) -> None:
    """R-14, R-15: only immutable ids count; the log says which entry does nothing."""
    keys = {"owner_user_id": f'"{entry}"', LISTS[name]: f'["{entry}"]', "command_allowlist": f'["{entry}"]'}
    with caplog.at_level(logging.WARNING):
        rules = access(tmp_path, name, **keys)

    assert rules == Access(local=False)
    assert ("lets nobody in" in caplog.text) == bool(entry.strip())


@covers("auth.rule1.local", "auth.rule2.unknown-channel")
def test_two_channels_are_local_and_no_other_name_is_known_but_the_platforms(tmp_path: Path) -> None:
    """Ingress and trust, authorization rules 1 and 2, by the catalog that the daemon reads."""
    rules = access_rules(read(tmp_path, ""))

    assert {name for name, found in rules.items() if found.local} == {"cli", "daemon"}
    assert set(rules) == {"cli", "daemon", "telegram", "whatsapp", "discord", "slack", "signal"}


@EVERY_CHANNEL
def test_without_keys_or_while_off_nobody_gets_in(tmp_path: Path, name: str) -> None:
    owner, guest = IDS[name]
    off = section(name, owner_user_id=f'"{owner}"', **{LISTS[name]: f'["{guest}"]'}).replace("true", "false")

    assert access(tmp_path, name) == Access(local=False)
    assert access(tmp_path, name, **{LISTS[name]: "[]"}) == Access(local=False)
    assert access_rules(read(tmp_path, off))[name] == Access(local=False)
    assert access_rules(read(tmp_path, ""))[name] == Access(local=False)


@EVERY_CHANNEL
def test_the_owner_counts_even_beside_an_empty_list(tmp_path: Path, name: str) -> None:
    owner, _ = IDS[name]
    rules = access(tmp_path, name, owner_user_id=f'"{owner}"', **{LISTS[name]: "[]"})
    verdict = Authorizer({name: rules}).resolve(message("hi", channel=name, sender=owner))

    assert verdict.trust is Trust.OPERATOR


@covers("owner.command-fallback", "owner.two-need-explicit", "owner.friend-stays-guest")
@EVERY_CHANNEL
def test_the_sole_entry_may_run_commands_and_stays_a_guest(tmp_path: Path, name: str) -> None:
    """Ingress and trust, owner model: the fallback is for commands only, and only while there is one entry."""
    one, two = IDS[name]
    sole = access(tmp_path, name, **{LISTS[name]: f'["{one}", "{one}"]'})
    both = access(tmp_path, name, **{LISTS[name]: f'["{one}", "{two}"]'})
    wild = access(tmp_path, name, **{LISTS[name]: f'["{one}", "*"]'})
    misnamed_owner = access(tmp_path, name, owner_user_id='"@jo"', **{LISTS[name]: f'["{one}"]'})

    assert (sole.owner, sole.listed, sole.commanders) == (None, {one}, {one})
    assert (both.owner, both.commanders) == (None, frozenset())
    assert (wild.owner, wild.commanders) == (None, frozenset())
    assert (misnamed_owner.owner, misnamed_owner.commanders) == (None, frozenset())


@covers("config.command-allowlist", "config.command-allowlist.absent")
def test_the_allow_list_lets_guests_run_commands_and_nothing_else(tmp_path: Path) -> None:
    owner, guest = IDS["telegram"]
    keys = {"owner_user_id": f'"{owner}"', "allowed_user_ids": f'["{guest}"]'}
    stranger = access(tmp_path, "telegram", owner_user_id=keys["owner_user_id"], command_allowlist=f'["{guest}"]')

    def judged(rules: Access) -> object:
        return Authorizer({"telegram": rules}).resolve(message("/new", channel="telegram", sender=guest))

    without, allowed = (
        judged(access(tmp_path, "telegram", **keys)),
        judged(access(tmp_path, "telegram", **keys, command_allowlist=f'["{guest}"]')),
    )
    assert (without.trust, without.commands) == (Trust.GUEST, False)
    assert (allowed.trust, allowed.commands) == (Trust.GUEST, True)
    assert not hasattr(judged(stranger), "trust")


def test_lists_may_come_from_the_environment(tmp_path: Path) -> None:
    """Reference 3, section 6.1: comma separated, and named by `fermix status`."""
    config = read(tmp_path, section("signal"), SIGNAL_ALLOWED_SENDER_IDS=f" {IDS['signal'][0]} , {IDS['signal'][1]},")

    assert access_rules(config)["signal"].listed == set(IDS["signal"])
    assert "SIGNAL_ALLOWED_SENDER_IDS" in config.environment


@covers("auth.no-allow-all", "failclosed.inert")
@EVERY_CHANNEL
@pytest.mark.parametrize("stated", ["", "  ", ",", " , ,", "*", "@jo", "all,*"])
def test_a_list_of_the_environment_that_names_nobody_means_nobody(tmp_path: Path, name: str, stated: str) -> None:
    """Reference 3, section 6.1; R-15: a blank variable is an empty list, and never falls back to the file."""
    _, guest = IDS[name]
    variable = f"{name}_{LISTS[name]}".upper()
    config = read(tmp_path, section(name, **{LISTS[name]: f'["{guest}"]'}), **{variable: stated})

    assert access_rules(config)[name] == Access(local=False)
    assert variable in config.environment
