"""Reading config.toml: what is right is typed, what is wrong is named with its place."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field

from fermix.config.load import build, load
from fermix.config.model import AgentSettings, Config, LocalModelSettings, Settings, WebAddress
from fermix.config.secrets import Secret
from fermix.errors import ConfigError
from fermix.home import Home
from tests.requirements import covers


class VendorSettings(Settings):
    api_key: Secret | None = None
    base_url: WebAddress | None = None
    default_model: str | None = None
    primary: bool = False


class OllamaSettings(VendorSettings):
    pass


class RoomSettings(Settings):
    mode: str = "standard"
    allowed: tuple[str, ...] = ()


class CommandSettings(Settings):
    command: str


class CommandsSettings(Settings):
    custom: dict[str, CommandSettings] = Field(default_factory=dict[str, CommandSettings])


SECTIONS: dict[str, type[Settings]] = {
    "fermix_core.providers.openai": VendorSettings,
    "fermix_core.providers.ollama": OllamaSettings,
    "sandbox": RoomSettings,
    "sandbox.commands": CommandsSettings,
}
RELEASED = Path(__file__).parent / "released"


@pytest.fixture
def home(tmp_path: Path) -> Home:
    root = tmp_path / "home"
    root.mkdir(mode=0o700)
    return Home(root)


def read(text: str, environ: dict[str, str] | None = None) -> Config:
    return build(text, Home(Path("/h")), environ or {}, SECTIONS, ("OPENAI_API_KEY",))


def refusal(text: str, environ: dict[str, str] | None = None) -> str:
    with pytest.raises(ConfigError) as caught:
        read(text, environ)
    return str(caught.value)


def test_missing_file_means_defaults(home: Home) -> None:
    config = load(home, {}, SECTIONS)

    assert (config.core.agent.name, config.web.port, config.web.bind) == ("fermix", 4030, "127.0.0.1")
    assert config.stated == frozenset()
    assert config.log_file == home.log_file
    assert not home.config.exists()


@covers("home.config", "config.edit-by-hand")
def test_each_section_arrives_as_its_type(home: Home) -> None:
    home.config.write_text(
        '[fermix_core]\nprofile = "work"\n[fermix_core.agent]\nname = "Ada"\n'
        '[fermix_core.providers.openai]\napi_key = "sk-canary-123456789"\nprimary = true\n'
        '[sandbox]\nallowed = ["/a", "/b"]\n[fermix_web]\nport = 0\n',
        encoding="utf-8",
    )

    config = load(home, {}, SECTIONS)

    vendor = config.section("fermix_core.providers.openai", VendorSettings)
    assert config[RoomSettings] == RoomSettings(allowed=("/a", "/b"))
    assert (config.core.settings.profile, config[AgentSettings].name, config.web.port) == ("work", "Ada", 0)
    assert vendor.primary
    assert vendor.api_key == Secret("sk-canary-123456789")
    assert "fermix_core.providers.ollama" not in config.stated
    assert "fermix_core.providers.openai" in config.stated


def test_byte_order_mark_and_windows_line_ends_are_read(home: Home) -> None:
    """CFG-05"""
    home.config.write_bytes('\ufeff[fermix_core.agent]\r\nname = "Ada"\r\n'.encode())

    assert load(home, {}, SECTIONS).core.agent.name == "Ada"


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("[fermix_web]\nport = \n", "(at line 2, column 8)"),
        ("[fermix_web\nport = 1", "(at line 1, column 12)"),
        ("a = 1\na = 2", "(at line 2, column 6)"),
        ("[a]\n[a]\n", "(at line 2, column 3)"),
        ("a = [1,\n", "(at line 2, column 1)"),
        ("a = {b = 1,}", "(at line 1, column 12)"),
        ("a\t=\t1,", "(at line 1, column 6)"),
        ("a = 2024-13-01", "(at line 1, column 9)"),
        ("a = '\x00'", "(at line 1, column 6)"),
    ],
)
def test_syntax_error_names_line_and_column(text: str, place: str) -> None:
    """CFG-05"""
    assert refusal(text).startswith("/h/config.toml: ")
    assert refusal(text).endswith(place)


@pytest.mark.parametrize("text", ["a = " + "[" * 5_000, "a = " + "9" * 5_000])
def test_text_that_breaks_the_parser_is_a_config_error(text: str) -> None:
    assert refusal(text).startswith("/h/config.toml: ")


@pytest.mark.parametrize("depth", [50, 300, 400, 900])
def test_deep_nesting_is_a_config_error_at_any_depth(depth: int) -> None:
    text = f"[sandbox]\nallowed = {'[' * depth}{']' * depth}\n"

    assert refusal(text).startswith("/h/config.toml: ")


def test_key_inside_a_text_is_not_taken_for_the_setting() -> None:
    text = '[sandbox]\nmode = """\n[fermix_web]\nport = 80\n"""\n[fermix_web]\nport = 81\n'

    assert "fermix_web.port: line 7: must lie" in refusal(text)


def test_bytes_that_are_no_text_are_named_with_their_place(home: Home) -> None:
    home.config.write_bytes(b'[fermix_core.agent]\nname = "\xff"\n')

    with pytest.raises(ConfigError, match=r"is not UTF-8 text \(at line 2, column 9\)"):
        load(home, {}, SECTIONS)


def test_folder_in_place_of_the_file_is_refused(home: Home) -> None:
    home.config.mkdir()

    with pytest.raises(ConfigError, match="cannot be read"):
        load(home, {}, SECTIONS)


def test_huge_file_is_refused(home: Home) -> None:
    home.config.write_bytes(b"#" * 1_048_577)

    with pytest.raises(ConfigError, match="larger than"):
        load(home, {}, SECTIONS)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[fermix_web]\n\nprot = 1\n", "fermix_web.prot: line 3: unknown key; did you mean 'port'?"),
        ("[fermix_web]\nzzz = 1\n", "fermix_web.zzz: line 2: unknown key; known here: bind, port"),
        ("[fermix_wbe]\nport = 1\n", "fermix_wbe: line 1: unknown key; did you mean 'fermix_web'?"),
        (
            "# x\n[fermix_core.providers.opnai]\nprimary = true\n",
            "fermix_core.providers.opnai: line 2: unknown key; did you mean 'openai'?",
        ),
        ("[fermix_core.agnet]\n", "fermix_core.agnet: line 1: unknown key; did you mean 'agent'?"),
        ("sandbox = 3\n", "sandbox: line 1: must be a section, written [sandbox]"),
        ("[[fermix_web]]\nport = 1\n", "fermix_web: line 1: must be a section, written [fermix_web]"),
        ("[fermix_web]\nport = '4030'\n", "fermix_web.port: line 2: Input should be a valid integer"),
        ("[fermix_web]\nport = 80\n", "fermix_web.port: line 2: must lie between 1024 and 65535"),
        ("[fermix_web]\nport = true\n", "fermix_web.port: line 2: Input should be a valid integer"),
        ("[fermix_web]\nport = 1e400\n", "fermix_web.port: line 2: Input should be a valid integer"),
        ("[fermix_web]\nbind = 'localhost'\n", "fermix_web.bind: line 2: must be an IP address"),
        ("[fermix_core.agent]\nname = 7\n", "fermix_core.agent.name: line 2: Input should be a valid string"),
        ("[fermix_core.agent]\nname = ' '\n", "fermix_core.agent.name: line 2: must be one line"),
        ("[fermix_core.agent]\nname = '''a\nb'''\n", "fermix_core.agent.name: line 2: must be one line"),
        ("[fermix_core.personalization]\ntimezone = 'Mars/Base'\n", "timezone: line 2: is no time zone"),
        ("[fermix_core.personalization]\ntimezone = '../etc/passwd'\n", "timezone: line 2: is no time zone"),
        ("[sandbox]\nallowed = [\n'/a',\n3]\n", "sandbox.allowed: line 2: entry 2: Input should be a valid string"),
        (
            "[sandbox]\n[sandbox.commands.custom.tickets]\nargs = []\n",
            "sandbox.commands.custom.tickets.command: line 2: is missing",
        ),
        (
            "[sandbox.commands.custom.tickets]\ncommand = 'x'\nargz = []\n",
            "sandbox.commands.custom.tickets.argz: line 3: unknown key",
        ),
        ("fermix_core.secret_store = 'cloud'\n", "fermix_core.secret_store: line 1: Input should be 'file' or 'k"),
        (
            "[fermix_core.providers.openai]\nbase_url = 'ftp://x'\n",
            "openai.base_url: line 2: must be an http:// or https:// address",
        ),
    ],
)
def test_wrong_setting_is_named_with_file_key_and_line(text: str, message: str) -> None:
    """CFG-03"""
    assert refusal(text).startswith("/h/config.toml: ")
    assert message in refusal(text)


@pytest.mark.parametrize("value", ["12345678901", '"ключ-от-всего"', '"two words here"', '"line\\nbreak-12345"', '""'])
def test_bad_key_is_named_and_never_shown(value: str) -> None:
    """SEC-06, SEC-10"""
    message = refusal(f"[fermix_core.providers.openai]\napi_key = {value}\n")

    assert "fermix_core.providers.openai.api_key: line 2" in message
    assert value.strip('"') == "" or value.strip('"') not in message


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"PORT": "5000"}, ("127.0.0.1", 5000)),
        ({"FERMIX_HTTP_BIND": "::1", "PORT": " "}, ("::1", 4040)),
    ],
)
@covers("config.env-overrides")
def test_environment_wins_over_the_file(environ: dict[str, str], expected: tuple[str, int]) -> None:
    config = read("[fermix_web]\nport = 4040\n", environ)

    assert (config.web.bind, config.web.port) == expected


def test_variables_in_use_are_listed_and_blank_ones_are_unset() -> None:
    """CFG-06"""
    config = read(
        "",
        {
            "FERMIX_HOME": "/h",
            "FERMIX_LOG_FILE": "/l/x.log",
            "FERMIX_TRACE_DIR": " ",
            "FERMIX_TRACE_CONTENT": "yes",
            "OLLAMA_BASE_URL": "http://127.0.0.1:11434/v1",
            "OPENAI_API_KEY": "sk-canary-123456789",
            "PORT": "",
            "ANTHROPIC_API_KEY": "nobody asked for this one",
        },
    )

    used = ("FERMIX_HOME", "FERMIX_LOG_FILE", "FERMIX_TRACE_CONTENT", "OLLAMA_BASE_URL", "OPENAI_API_KEY")
    assert config.environment == used
    assert config.log_file == Path("/l/x.log")
    assert config.trace_folder == Path("/h/traces")
    assert config.core.traces.content
    assert config.section("fermix_core.providers.ollama", OllamaSettings).base_url == "http://127.0.0.1:11434/v1"
    assert "fermix_core.providers.ollama" in config.stated
    assert config.secrets == {"OPENAI_API_KEY": Secret("sk-canary-123456789")}


@pytest.mark.parametrize(
    "environ",
    [
        {"PORT": "80"},
        {"PORT": "4030x"},
        {"PORT": "٤٠٣٠"},
        {"FERMIX_HTTP_BIND": "all"},
        {"FERMIX_TRACE_CONTENT": "maybe"},
        {"FERMIX_LOG_FILE": "fermix.log"},
        {"FERMIX_TRACE_DIR": "./traces"},
        {"OLLAMA_BASE_URL": "localhost:11434"},
        {"OPENAI_API_KEY": "ключ-canary"},
    ],
)
def test_wrong_variable_is_named(environ: dict[str, str]) -> None:
    (name,) = environ
    assert refusal("", environ).startswith(f"environment: {name}: ")


def test_variable_over_a_section_that_is_no_table_blames_the_file() -> None:
    assert "fermix_web: line 1: must be a section" in refusal("fermix_web = 1\n", {"PORT": "5000"})


def test_local_model_cannot_be_first_and_off() -> None:
    wrong = "[fermix_web]\n[fermix_core.local_model]\nenabled = false\nprimary = true\n"

    assert "fermix_core.local_model: line 2: the local model cannot be primary while enabled" in refusal(wrong)


def test_section_asked_with_the_wrong_type_is_a_bug() -> None:
    config = read("")

    with pytest.raises(KeyError):
        config.section("sandbox", VendorSettings)
    with pytest.raises(KeyError):
        config[Settings]


@pytest.mark.parametrize("path", sorted(RELEASED.glob("*.toml")), ids=lambda path: path.stem)
def test_every_config_that_a_release_could_write_still_loads(path: Path) -> None:
    """CFG-07"""
    config = read(path.read_text(encoding="utf-8"))

    assert config.core.local_model == LocalModelSettings(mirror="https://mirror.example/m", threads=2, idle_s=60)


@given(st.text(max_size=300))
def test_any_text_loads_or_is_a_config_error(text: str) -> None:
    with suppress(ConfigError):
        assert isinstance(read(text), Config)


def test_failed_load_leaves_the_file_untouched(home: Home) -> None:
    """CFG-02: nothing but the editor ever writes the file."""
    home.config.write_text("port = \n", encoding="utf-8")
    before = home.config.stat()

    with pytest.raises(ConfigError):
        load(home, {}, SECTIONS)

    after = home.config.stat()
    assert (before.st_mtime_ns, before.st_ino) == (after.st_mtime_ns, after.st_ino)
    assert [entry.name for entry in home.root.iterdir()] == ["config.toml"]


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        ('allowed = "one"', '/h/config.toml: sandbox.allowed: line 3: must be a list, like ["…"]'),
        ('allowed = ["one", 2]', "/h/config.toml: sandbox.allowed: line 3: entry 2: Input should be a valid string"),
        (
            'allowed = [\n  "one",\n  2,\n]',
            "/h/config.toml: sandbox.allowed: line 3: entry 2: Input should be a valid string",
        ),
    ],
)
def test_a_wrong_list_is_named_in_the_words_of_the_file(lines: str, says: str) -> None:
    """With its line, and its entries counted from 1: nobody who writes TOML knows of tuples."""
    assert refusal(f'[sandbox]\nmode = "open"\n{lines}\n') == says
