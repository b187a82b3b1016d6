"""file_read of pictures: small ones as they are, large ones decoded and shrunk in a process of their own."""

from __future__ import annotations

import io
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from fermix.agent.documents.pictures import LONGEST_SIDE, Size, size_of
from fermix.agent.model import ToolResult
from tests.agent.documents import samples
from tests.agent.tools.conftest import Toolbox

TOO_BROKEN = "p is a PNG picture of 3000×1000 pixels; it is broken, or too large to be shown"
KINDS = [("PNG", "image/png"), ("JPEG", "image/jpeg"), ("GIF", "image/gif"), ("WebP", "image/webp")]


@pytest.mark.parametrize(("kind", "mime"), KINDS)
async def test_a_small_picture_is_shown_as_it_is(toolbox: Toolbox, kind: str, mime: str) -> None:
    data = samples.picture(kind, 40, 30)
    toolbox.write("p", data)

    result = await toolbox.call("file_read", path="p")

    assert (result.ok, result.outside) == (True, True)
    assert f"p is a {kind} picture of 40×30 pixels" in result.text
    assert [(image.mime, image.data) for image in result.images] == [(mime, data)]


@pytest.mark.parametrize(("kind", "_mime"), KINDS)
async def test_a_large_picture_is_shrunk(toolbox: Toolbox, kind: str, _mime: str) -> None:
    toolbox.write("p", samples.picture(kind, 3_000, 1_000))

    result = await toolbox.call("file_read", path="p")

    assert result.outside
    assert "of 3000×1000 pixels, shown smaller" in result.text
    (image,) = result.images
    shown = Image.open(io.BytesIO(image.data))
    assert (image.mime, shown.format, shown.size) == ("image/jpeg", "JPEG", (LONGEST_SIDE, 523))


async def test_the_size_of_a_picture_is_looked_for_beside_the_loop(
    toolbox: Toolbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A JPEG of a megabyte of empty markers takes a third of a second."""
    loops_own, threads = threading.get_ident(), set[int]()

    def look(head: bytes) -> Size | None:
        threads.add(threading.get_ident())
        return size_of(head)

    monkeypatch.setattr("fermix.agent.documents.file_reader.size_of", look)
    toolbox.write("p", b"\xff\xd8" + b"\xff" * 100_000)

    result = await toolbox.call("file_read", path="p")

    assert result == ToolResult(False, "p is a broken JPEG picture; it cannot be shown")
    assert threads
    assert loops_own not in threads


async def test_pixels_are_counted_before_anything_decodes(toolbox: Toolbox) -> None:
    """R-54: by the header alone."""
    toolbox.write("p", samples.huge_png())

    result = await toolbox.call("file_read", path="p")

    size_bytes = len(samples.huge_png())
    sentence = f"p is a PNG picture of 40000×40000 pixels and {size_bytes} bytes, which is too large to be shown"
    assert result == ToolResult(False, sentence)


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"\x89PNG\r\n\x1a\n\0", "p is a broken PNG picture; it cannot be shown"),
        (b"\xff\xd8\xff\xe0\0\x10JFIF\0", "p is a broken JPEG picture; it cannot be shown"),
        (samples.picture("PNG", 3_000, 1_000)[:100], TOO_BROKEN),
    ],
    ids=["no-header", "cut-header", "cut-data"],
)  # fmt: skip
async def test_a_broken_picture_says_so(toolbox: Toolbox, data: bytes, sentence: str) -> None:
    toolbox.write("p", data)

    assert await toolbox.call("file_read", path="p") == ToolResult(False, sentence)


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "GIF", "WebP"])
def test_a_header_says_what_a_decoder_says(kind: str) -> None:
    for size in ((1, 1), (17, 300), (1_200, 9)):
        assert size_of(samples.picture(kind, *size)) == size


@settings(max_examples=300)
@given(st.sampled_from([samples.picture(kind, 20, 20) for kind, _ in KINDS]), st.data())
def test_no_header_breaks_its_reader(data: bytes, draws: st.DataObject) -> None:
    """Bytes of a stranger are read in the daemon itself, so nothing may come of them but a size or none."""
    broken = bytearray(data[: draws.draw(st.integers(1, len(data)))])
    for place in draws.draw(st.lists(st.integers(0, len(broken) - 1), max_size=6)):
        broken[place] = draws.draw(st.integers(0, 255))

    size = size_of(bytes(broken))

    assert size is None or min(size) > 0
