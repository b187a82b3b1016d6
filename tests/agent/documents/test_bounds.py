"""Bounds of the readers of documents, each by itself: R-54 wants them before anything large is unpacked or decoded."""

from __future__ import annotations

import io
import json
import resource
import struct
import subprocess
import sys
import zipfile
from collections.abc import Sequence

import pytest
from defusedxml.common import DTDForbidden
from PIL import Image, UnidentifiedImageError

from fermix.agent.documents import sheets
from fermix.agent.documents.limits import MEMORY_BYTES, TIMEOUT_S
from fermix.agent.documents.package import MOST_BYTES, MOST_PART_BYTES, RATIO_FROM_BYTES, open_package
from fermix.agent.documents.pictures import UNTOUCHED_BYTES, is_small
from fermix.agent.documents.shrink import shrunk
from fermix.agent.documents.word import paragraphs
from fermix.errors import Unusable
from tests.agent.documents import samples

ENTRY = b"PK\x01\x02"  # one of the list at the end, which `zipfile` believes


def declared(sizes: Sequence[tuple[int, int]], *, flags: int = 0) -> io.BytesIO:
    """An archive whose parts say they are so large, packed and unpacked."""
    archive = bytearray(samples.package(**{f"p{number}": b"x" for number in range(len(sizes))}))
    at = -1
    for packed, unpacked in sizes:
        at = archive.index(ENTRY, at + 1)
        struct.pack_into("<H", archive, at + 8, flags)
        struct.pack_into("<II", archive, at + 20, packed, unpacked)
    return io.BytesIO(bytes(archive))


@pytest.mark.parametrize(
    ("file", "sentence"),
    [
        (declared([(MOST_PART_BYTES // 2, MOST_PART_BYTES)] * 3), "too large once it is unpacked"),
        (declared([(MOST_PART_BYTES // 2, MOST_PART_BYTES + 1)]), "is a bomb"),
        (declared([(1_000, RATIO_FROM_BYTES + 1)]), "is a bomb"),
        (declared([(1, 1)], flags=1), "has a password"),
    ],
    ids=["sum", "part", "ratio", "locked"],
)
def test_an_archive_past_a_bound_is_not_unpacked(file: io.BytesIO, sentence: str) -> None:
    with pytest.raises(Unusable, match=sentence):
        open_package(file)


def test_what_shrinks_well_and_is_small_is_no_bomb() -> None:
    assert MOST_BYTES > 2 * MOST_PART_BYTES
    assert open_package(declared([(1_000, RATIO_FROM_BYTES)])).namelist() == ["p0.xml"]


def test_no_document_brings_a_grammar_of_its_own() -> None:
    """Also one that declares nothing: what it may declare is how parsers are attacked."""
    package = zipfile.ZipFile(io.BytesIO(samples.word("x", prolog="<!DOCTYPE x>")))
    with pytest.raises(DTDForbidden):
        list(paragraphs(package))


def test_a_sheet_is_as_wide_as_its_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever it states: a million columns take time also when they hold nothing."""
    seen: list[object] = []
    monkeypatch.setattr(sheets, "_text", lambda value: seen.append(value) or "")
    stated = zipfile.ZipFile(io.BytesIO(samples.workbook()))
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name in stated.namelist():
            archive.writestr(name, stated.read(name).replace(b'ref="A1:C4"', b'ref="A1:XFD1048576"'))

    assert b"XFD1048576" in zipfile.ZipFile(out).read("xl/worksheets/sheet1.xml")
    assert list(sheets.rows(out)) == ["[sheet Budget]", "[sheet Empty]"]
    assert len(seen) < 100


def test_only_formats_that_we_name_are_decoded() -> None:
    out = io.BytesIO()
    Image.new("RGB", (9, 9)).save(out, "TIFF")
    with pytest.raises(UnidentifiedImageError):
        shrunk(out)


def test_a_picture_of_too_many_pixels_is_not_decoded() -> None:
    with pytest.raises(Image.DecompressionBombError):
        shrunk(io.BytesIO(samples.huge_png()))


def test_a_large_file_is_decoded_whatever_its_size_in_pixels() -> None:
    assert is_small((9, 9), UNTOUCHED_BYTES)
    assert not is_small((9, 9), UNTOUCHED_BYTES + 1)


def test_a_converter_takes_from_itself_what_it_does_not_need() -> None:
    names = ["AS", "CPU", "FSIZE", "CORE", "NPROC"]
    program = (
        "import json, resource, sys; from fermix.agent.documents import serve_conversion as serve\n"
        f"look = lambda *_: json.dumps([resource.getrlimit(getattr(resource, 'RLIMIT_' + n)) for n in {names}])\n"
        "serve.KINDS = {'page': look}\n"
        "serve.serve_conversion(b'[\"page\", {}, null]\\n', sys.stdout.buffer.write)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, timeout=30)

    assert json.loads(done.stdout) == [[most] * 2 for most in (MEMORY_BYTES, int(TIMEOUT_S), 0, 0, 0)]
    assert resource.getrlimit(resource.RLIMIT_AS)[0] == resource.RLIM_INFINITY
