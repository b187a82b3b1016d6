"""The tools in the whole product: the daemon's own children behind their walls, git, files, and who may change.

The children are the program itself under hidden verbs: each of these also tells whether the built file has them all.
"""

from __future__ import annotations

import base64
import io
import json
import subprocess
from collections.abc import Generator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from PIL import Image

from tests.agent.documents import samples
from tests.fakes.repository import Repository
from tests.flows.product import Product, compatible, running, scripted
from tests.flows.terminal import at_a_terminal

pytestmark = pytest.mark.slow

COMMAND = '[sandbox.commands.greet]\ncommand = "/bin/echo"\nargs = ["good", "morning"]\n'


@pytest.fixture
def top(tmp_path: Path) -> Path:
    """A repository inside the user's home, with documents of all kinds."""
    repository = Repository.make(tmp_path / "user" / "work")
    repository.write("a.txt", "alpha\nbeta\n")
    files = {
        "a.pdf": samples.pdf("the first page", "the second page"),
        "a.docx": samples.word("Dear Ann,", table=(("left", "right"),)),
        "a.xlsx": samples.workbook(),
        "a.png": samples.picture("PNG", 3_000, 1_000),
    }
    for name, data in files.items():
        (repository.top / name).write_bytes(data)
    return repository.top


def results(tmp_path: Path, top: Path, *calls: tuple[str, Mapping[str, object]]) -> list[str | list[dict[str, object]]]:
    """What the model is told after these calls, asked from the folder `top`."""
    wanted = [{"name": name, "arguments": arguments} for name, arguments in calls]
    with (
        scripted(tmp_path, [{"calls": wanted}, {"tell": True}], repeat=False) as url,
        running(tmp_path, compatible(url) + COMMAND) as product,
    ):
        asked = product.run("ask", "please", cwd=top)
    assert asked.returncode == 0, asked.stderr
    told: list[str | list[dict[str, object]]] = json.loads(asked.stdout)
    return told


def test_documents_are_read_as_text_and_pictures_are_shown(tmp_path: Path, top: Path) -> None:
    names = ("a.pdf", "a.docx", "a.xlsx", "a.png")
    pdf, word, sheets, picture, shown = results(tmp_path, top, *[("file_read", {"path": name}) for name in names])

    assert "[page 1 of 2]\nthe first page\n[page 2 of 2]\nthe second page" in pdf
    assert "Dear Ann,\nleft\tright" in word
    assert "[sheet Budget]\n1: month\tsum\twhen\n2: May\t12.5\t2026-05-01" in sheets
    assert "a.png is a PNG picture of 3000×1000 pixels, shown smaller" in picture
    assert isinstance(shown, list)
    address = str(shown[-1]["image_url"])
    data = base64.b64decode(address.partition("base64,")[2].partition("'")[0])
    assert max(Image.open(io.BytesIO(data)).size) < 3_000


def test_files_are_found_written_changed_and_kept_in_git(tmp_path: Path, top: Path) -> None:
    found, status, wrote, changed, added, greeted = results(
        tmp_path,
        top,
        ("content_search", {"pattern": "al.ha", "regex": True}),
        ("git_read", {"command": "status", "args": ["--short", "a.txt"]}),
        ("file_write", {"path": "new/plan.md", "content": "one two\n"}),
        ("file_edit", {"path": "new/plan.md", "old_string": "two", "new_string": "three"}),
        ("git_write", {"command": "add", "args": ["new/plan.md"]}),
        ("run_greet", {"args": ["Ann"]}),
    )

    assert "a.txt:1: alpha" in found
    assert "M a.txt" in status
    assert ("wrote 8 bytes" in wrote, "changed new/plan.md" in changed, added) == (True, True, "done")
    assert "good morning Ann" in greeted
    assert (top / "new" / "plan.md").read_text(encoding="utf-8") == "one three\n"
    staged = subprocess.run(["git", "diff", "--cached", "--name-only"], cwd=top, capture_output=True, check=True)
    assert b"new/plan.md" in staged.stdout


def test_a_command_sees_its_folder_and_no_secret_and_the_web_is_no_way_to_this_machine(
    tmp_path: Path, top: Path
) -> None:
    key = tmp_path / "user" / ".ssh" / "id"
    key.parent.mkdir()
    key.write_text("canary-words", encoding="utf-8")
    ran, read, fetched = results(
        tmp_path,
        top,
        ("shell", {"command": f"cat a.txt; cat {key}"}),
        ("file_read", {"path": str(key)}),
        ("web_fetch", {"url": "http://127.0.0.1:1/"}),
    )

    assert "alpha" in ran
    assert not any("canary-words" in str(told) for told in (ran, read))
    assert "protected, no tool may touch it" in read
    assert "127.0.0.1 is not an address on the public internet" in fetched


def test_the_program_holds_all_that_makes_a_page_readable(tmp_path: Path) -> None:
    """No page of this machine may be fetched, so the child that would read one is asked as the tool asks it."""
    product = Product(tmp_path)
    product.prepare()
    request = json.dumps(["page", {"url": "https://example.org/", "charset": ""}, None])
    page = "<html><body><h1>A title</h1><p>Words, <b>bold</b> ones.</p></body></html>"
    read = product.run("_convert", stdin=f"{request}\n{page}".encode())

    assert (read.returncode, read.stderr) == (0, "")
    assert "# A title" in read.stdout
    assert "**bold**" in read.stdout


@pytest.fixture(params=[True, False], ids=["with a daemon", "without one"])
def product(tmp_path: Path, request: pytest.FixtureRequest) -> Generator[Product]:
    config = "[fermix_web]\nport = 0\n"
    if request.param:
        with running(tmp_path, config) as product:
            yield product
    else:
        product = Product(tmp_path, config)
        product.prepare()
        yield product


def test_what_opens_needs_a_yes_at_a_terminal_and_what_closes_is_done_at_once(product: Product) -> None:
    folder = product.user_home / "photos"
    folder.mkdir()
    unattended = product.run("grant", "path", str(folder))
    refused, _ = at_a_terminal(product, "no", "grant", "path", str(folder))
    before = product.run("sandbox", "explain", str(folder)).stdout
    agreed, shown = at_a_terminal(product, "yes", "grant", "path", str(folder))
    between = product.run("sandbox", "explain", str(folder)).stdout
    revoked = product.run("revoke", "path", str(folder))
    narrowed = product.run("sandbox", "mode", "strict")

    assert (unattended.returncode, "needs your yes at a terminal" in unattended.stderr) == (1, True)
    assert (refused, agreed, revoked.returncode, narrowed.returncode) == (1, 0, 0, 0)
    assert f'opens: "{folder}"' in shown
    assert ("\nclosed: " in before, "\nopen: " in between) == (True, True)
    assert "\nclosed: " in product.run("sandbox", "explain", str(folder)).stdout
    assert json.loads(product.run("sandbox", "--json").stdout)["mode"] == "strict"
    assert len(list((product.home / "grants").iterdir())) == 3


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ('[fermix_core.tools.web_search]\nbackend = "bing"\n', "fermix_core.tools.web_search.backend"),
        ("[fermix_core.tools.generate_image]\nsize = 3\n", "fermix_core.tools.generate_image.size"),
        ("[fermix_core.routing]\ncron_modle = 3\n", "fermix_core.routing.cron_modle"),
        ('[sandbox.env]\nmode = "some"\n', "sandbox.env.mode"),
        ('[sandbox.commands]\npresets = ["games"]\n', "sandbox.commands.presets"),
        ('[sandbox.commands.x]\ncommand = "/bin/echo"\nargz = []\n', "sandbox.commands.x.argz"),
        ("[sandbox.commands.x]", "sandbox.commands.x.command"),
    ],
)
def test_a_wrong_key_stops_the_start_with_file_key_and_line(tmp_path: Path, text: str, named: str) -> None:
    product = Product(tmp_path, "[fermix_web]\nport = 0\n" + text)
    product.prepare()
    line = product.config.rstrip("\n").count("\n") + 1
    for verb in ("--daemon", "start"):
        done = product.run(verb)

        assert done.returncode == 1
        assert named in done.stderr
        assert "config.toml" in done.stderr
        assert f"line {line}" in done.stderr
        assert "Traceback" not in done.stderr


def test_what_is_closed_from_several_terminals_at_once_is_all_closed(product: Product) -> None:
    """None of them is told of a daemon that does not run, and none is lost."""
    folders = [product.user_home / name for name in ("one", "two", "three", "four")]
    for folder in folders:
        folder.mkdir()
        assert at_a_terminal(product, "yes", "grant", "path", str(folder))[0] == 0
    with ThreadPoolExecutor(len(folders)) as terminals:
        ended = list(terminals.map(lambda folder: product.run("revoke", "path", str(folder)), folders))

    assert [(done.returncode, done.stderr) for done in ended] == [(0, "")] * len(folders)
    open_now = {str(root["path"]) for root in json.loads(product.run("sandbox", "--json").stdout)["roots"]}
    assert open_now.isdisjoint(map(str, folders))
