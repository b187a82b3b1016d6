"""The rules of the house that a machine can hold: sizes, names, catalogs, where dangerous things may stand."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.requirements import covers

ROOT = Path(__file__).parent.parent.parent
PACKAGE = ROOT / "fermix"
MODULES = sorted(PACKAGE.rglob("*.py"))
MAX_MODULE_LINES = 400
MAX_FUNCTION_LINES = 60
SAY_NOTHING = {"utils", "helpers", "common", "misc", "base", "manager", "runtime"}
ROOMS = (
    ("agent/tools", "agent/tools/catalog.py"),
    ("gateway/commands", "gateway/commands/catalog.py"),
    ("cli/verbs", "cli/catalog.py"),
    ("tui/screens", "tui/screens/catalog.py"),
    ("channels", "channels/catalog.py"),
)
LATE_IMPORTS = (
    "cli/",
    "agent/providers/",
    "config/edit.py",
    "config/secrets.py",
    "config/secret_store.py",
    "config/keyring_store.py",
    "tui/",
    "daemon/serve.py",
    "fetch.py",
)

CATCH_ALL = {
    "agent/dispatch.py": "one tool call",
    "config/keyring_store.py": "a keyring's backend",
    "daemon/logs.py": "one line of the log",
    "daemon/socket.py": "one client",
    "gateway/answer.py": "one turn",
    "gateway/blocks.py": "an adapter's call",
    "gateway/delivery.py": "an adapter's call",
    "gateway/drafts.py": "an adapter's call",
    "gateway/gateway.py": "one message's way in",
    "gateway/files_and_reactions.py": "an adapter's call",
    "gateway/media.py": "an adapter's call",
    "gateway/queue.py": "one lane",
    "gateway/recovery.py": "one message of an earlier start",
    "gateway/replies.py": "the last word on a message",
    "gateway/typing.py": "an adapter's call",
    "store/writer.py": "one write, carried over to who asked for it",
    "supervisor.py": "one service",
}
"""Where whatever breaks is caught, and what alone it may end there: docs/decisions/0014-catch-all.md."""


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def _name(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def test_modules_stay_short() -> None:
    assert {_name(path): lines for path in MODULES if (lines := len(_text(path).splitlines())) > MAX_MODULE_LINES} == {}


def _functions(path: Path) -> Iterator[tuple[str, int]]:
    for node in ast.walk(ast.parse(_text(path))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno is not None:
            yield f"{_name(path)}:{node.name}", node.end_lineno - node.lineno + 1


def test_functions_stay_short() -> None:
    long = {name: lines for path in MODULES for name, lines in _functions(path) if lines > MAX_FUNCTION_LINES}

    assert long == {}


def test_names_say_something() -> None:
    assert [_name(path) for path in MODULES if path.stem in SAY_NOTHING] == []


def test_every_module_says_what_it_is() -> None:
    silent = [_name(path) for path in MODULES if _text(path).strip() and not ast.get_docstring(ast.parse(_text(path)))]

    assert silent == []


def test_every_folder_of_the_package_is_a_package() -> None:
    folders = {path.parent for path in MODULES}

    assert [_name(folder) for folder in folders if not (folder / "__init__.py").exists()] == []


@pytest.mark.parametrize(("room", "catalog"), ROOMS)
def test_every_room_stands_in_its_catalog(room: str, catalog: str) -> None:
    """A room nobody lists is missing from the frozen program without a word."""
    listed = _text(PACKAGE / catalog)
    rooms = {path.stem for path in (PACKAGE / room).glob("*.py")} - {"__init__", "catalog"}

    assert {name for name in rooms if not re.search(rf"\b{name}\b", listed)} == set()


def test_nothing_is_left_unfinished() -> None:
    marks = re.compile(r"\b(TODO|FIXME|XXX|HACK|NotImplementedError)\b")

    assert [_name(path) for path in MODULES if marks.search(_text(path))] == []


@covers("proc.no-own-http", "proc.no-broker-no-pool")
def test_no_part_of_ours_talks_to_another_over_http_a_broker_or_a_pool() -> None:
    """Architecture, choices; R-43. HTTP goes out by net.py, fetch.py and setup/probe.py, in by daemon/http.py."""
    speakers = {"aiohttp": {"net.py", "daemon/http.py"}, "httpx": {"fetch.py", "setup/probe.py"}}
    for library, allowed in speakers.items():
        found = {_name(path) for path in MODULES if re.search(rf"^\s*(import|from) {library}\b", _text(path), re.M)}
        assert found <= allowed, library
    banned = re.compile(
        r"^\s*(import|from) (multiprocessing|celery|redis|pika|kombu|zmq|rq|urllib\.request|http\.client)\b", re.M
    )
    assert [_name(path) for path in MODULES if banned.search(_text(path))] == []


@covers("arch.core-below-channels", "arch.core-without-web")
def test_the_core_knows_neither_channels_nor_the_web() -> None:
    """Architecture, umbrella: what answers does not know through what it is asked."""
    outer = re.compile(
        r"^\s*(from|import) (fermix\.(channels|daemon|tui|cli|setup)|aiohttp\.web|aiohttp import .*web)\b", re.M
    )
    core = [path for path in MODULES if _name(path).startswith(("agent/", "gateway/", "store/", "config/"))]

    assert len(core) > 50
    assert [_name(path) for path in core if outer.search(_text(path))] == []


OPENED_BY_NAME = {
    "gateway/transcription/listener.py": {"read_text"},  # of /proc, in the process that listens
}
"""What else of these rooms opens a file by its name: nothing that came from a model, a sender or a page."""


def _opens_by_name(path: Path) -> set[str]:
    """Calls that open what a name leads to. A method `open` counts where it is given a mode as files take it."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(_text(path))):
        if not isinstance(node, ast.Call):
            continue
        name = ast.unparse(node.func)
        last = name.rpartition(".")[2]
        of_a_path = last in {"read_text", "read_bytes", "write_text", "write_bytes", "hardlink_to", "symlink_to"}
        first = node.args[0] if node.args else None
        has_mode = isinstance(first, ast.Constant) and str(first.value).strip("bt+") in {"r", "w", "a", "x"}
        if of_a_path or name in {"open", "io.open", "os.open"} or (last == "open" and has_mode):
            found.add(last)
    return found


def test_no_tool_and_no_channel_opens_a_file_by_a_name() -> None:
    """R-29: one module opens what a model, a sender or a page names; it walks by descriptors and follows no link."""
    rooms = [
        path
        for path in MODULES
        if _name(path).startswith(("agent/tools/", "agent/documents/", "gateway/", "channels/"))
    ]
    found = {_name(path): names for path in rooms if (names := _opens_by_name(path))}

    assert len(rooms) > 50
    assert found == OPENED_BY_NAME


def test_download_addresses_stand_in_one_file() -> None:
    address = re.compile(
        r"https?://(?!127\.0\.0\.1|localhost|\[::1\])[a-z0-9.-]+\.[a-z]{2,}/\S*\.(whl|gguf|zip|tar|gz|bin)\b"
    )

    assert [_name(path) for path in MODULES if address.search(_text(path))] == []


def _without_encoding(path: Path) -> bool:
    calls = (node for node in ast.walk(ast.parse(_text(path))) if isinstance(node, ast.Call))
    texts = (
        call for call in calls if isinstance(call.func, ast.Attribute) and call.func.attr in ("read_text", "write_text")
    )
    return any("encoding" not in {keyword.arg for keyword in call.keywords} for call in texts)


def test_text_is_read_and_written_with_an_encoding() -> None:
    assert [_name(path) for path in MODULES if _without_encoding(path)] == []


def test_imports_stand_at_the_top_but_for_verbs_and_heavy_rooms() -> None:
    """House, section 11: a late import is for a verb, or for a library that only some installs need."""
    late = {
        _name(path)
        for path in MODULES
        for node in ast.walk(ast.parse(_text(path)))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and any(isinstance(inner, ast.Import | ast.ImportFrom) for inner in ast.walk(node))
    }

    assert {name for name in late if not name.startswith(LATE_IMPORTS)} == set()


def _catches_all(path: Path) -> bool:
    """Look for handlers of everything that end it there; one that raises again only tidies up."""
    handlers = (node for node in ast.walk(ast.parse(_text(path))) if isinstance(node, ast.ExceptHandler))
    return any(
        (handler.type is None or ast.unparse(handler.type) in ("Exception", "BaseException"))
        and not (isinstance(handler.body[-1], ast.Raise) and handler.body[-1].exc is None)
        for handler in handlers
    )


def test_everything_is_caught_only_where_one_thing_may_break_alone() -> None:
    assert {_name(path) for path in MODULES if _catches_all(path)} == set(CATCH_ALL)
