"""Documents and pictures as people have them, made here; and some that nobody should have."""

from __future__ import annotations

import datetime
import io
import struct
import zipfile
import zlib

import openpyxl
from PIL import Image
from pypdf import PdfReader, PdfWriter

FONT = b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>"
WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"


def pdf(*pages: str) -> bytes:
    """A PDF with one line of text on each page; ASCII."""
    kids = " ".join(f"{3 + 2 * number} 0 R" for number in range(len(pages)))
    bodies = [b"<</Type/Catalog/Pages 2 0 R>>", f"<</Type/Pages/Kids[{kids}]/Count {len(pages)}>>".encode()]
    for number, text in enumerate(pages):
        content = f"BT /F1 12 Tf 72 720 Td ({text}) Tj ET".encode() if text else b""
        page = f"<</Type/Page/Parent 2 0 R/MediaBox[0 0 612 792]/Contents {4 + 2 * number} 0 R".encode()
        bodies.append(page + b"/Resources<</Font<</F1 " + FONT + b">>>>>>")
        bodies.append(b"<</Length %d>>stream\n%s\nendstream" % (len(content), content))
    return _with_table(bodies)


def _with_table(bodies: list[bytes]) -> bytes:
    out = bytearray(b"%PDF-1.7\n")
    places: list[int] = []
    for number, body in enumerate(bodies, start=1):
        places.append(len(out))
        out += b"%d 0 obj%s endobj\n" % (number, body)
    start = len(out)
    out += b"xref\n0 %d\n0000000000 65535 f \n" % (len(bodies) + 1)
    out += b"".join(b"%010d 00000 n \n" % place for place in places)
    return bytes(out + b"trailer<</Size %d/Root 1 0 R>>\nstartxref\n%d\n%%%%EOF" % (len(bodies) + 1, start))


def locked_pdf(password: str) -> bytes:
    """The same behind a password; "" only forbids printing."""
    writer = PdfWriter(clone_from=PdfReader(io.BytesIO(pdf("secret words"))))
    writer.encrypt(password, owner_password="owner", algorithm="RC4-128")
    out = io.BytesIO()
    writer.write(out)
    return out.getvalue()


def endless_pdf() -> bytes:
    """A page whose drawing goes on for a very long time."""
    content = zlib.compress(b"BT /F1 12 Tf (x) Tj ET\n" * 3_000_000, 9)
    stream = b"<</Length %d/Filter/FlateDecode>>stream\n%s\nendstream" % (len(content), content)
    page = b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 9 9]/Contents 4 0 R/Resources<</Font<</F1 " + FONT + b">>>>>>"
    return _with_table([b"<</Type/Catalog/Pages 2 0 R>>", b"<</Type/Pages/Kids[3 0 R]/Count 1>>", page, stream])


def package(**parts: str | bytes) -> bytes:
    """A ZIP archive; `__` in a name stands for a slash."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in parts.items():
            archive.writestr(name.replace("__", "/") + ".xml", data)
    return out.getvalue()


def word(*paragraphs: str, table: tuple[tuple[str, ...], ...] = (), prolog: str = "") -> bytes:
    """A Word document."""
    texts = "".join(f"<w:p><w:r><w:t>{text}</w:t></w:r></w:p>" for text in paragraphs)
    cells = ("".join(f"<w:tc><w:p><w:r><w:t>{cell}</w:t></w:r></w:p></w:tc>" for cell in row) for row in table)
    rows = "".join(f"<w:tr>{row}</w:tr>" for row in cells)
    body = f"<w:body>{texts}{f'<w:tbl>{rows}</w:tbl>' if rows else ''}</w:body>"
    return package(word__document=f'{prolog}<w:document xmlns:w="{WORD}">{body}</w:document>')


def workbook() -> bytes:
    """An Excel workbook of two sheets."""
    book = openpyxl.Workbook()
    first = book.active
    assert first is not None
    first.title = "Budget"
    first.append(["month", "sum", "when"])
    first.append(["May", 12.5, datetime.date(2026, 5, 1)])
    first["B4"] = "=SUM(B2:B3)"
    book.create_sheet("Empty")
    out = io.BytesIO()
    book.save(out)
    return out.getvalue()


def picture(kind: str, width: int, height: int) -> bytes:
    """A picture of one colour."""
    out = io.BytesIO()
    Image.new("RGB", (width, height), "red").save(out, kind)
    return out.getvalue()


def huge_png() -> bytes:
    """A PNG that says it has 40,000 by 40,000 pixels."""

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    header = struct.pack(">IIBBBBB", 40_000, 40_000, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"\0" * 100)) + chunk(b"IEND", b"")
    )
