"""Documents with lines of our own in them, as small as their formats allow."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Sequence

WORDS = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
RELATIONS = "http://schemas.openxmlformats.org/package/2006/relationships"
OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships/officeDocument"
TYPES = "http://schemas.openxmlformats.org/package/2006/content-types"


def pdf(lines: Sequence[str]) -> bytes:
    """A page whose lines stand below each other in letters that nobody sees."""
    shown = "".join(f"({line}) Tj 0 -12 Td\n" for line in lines)
    stream = f"BT 3 Tr /F1 1 Tf 20 700 Td\n(A letter) Tj 0 -12 Td\n{shown}ET".encode()
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        (
            b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents 4 0 R"
            b" /Resources << /Font << /F1 5 0 R >> >> >>"
        ),
        b"<< /Length %d >>\nstream\n%s\nendstream" % (len(stream), stream),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    body, places = bytearray(b"%PDF-1.4\n"), list[int]()
    for number, one in enumerate(objects, start=1):
        places.append(len(body))
        body += b"%d 0 obj\n%s\nendobj\n" % (number, one)
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    end = b"xref\n0 %d\n0000000000 65535 f \n%strailer\n<< /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n"
    return bytes(body + end % (len(objects) + 1, table, len(objects) + 1, len(body)))


def word(lines: Sequence[str]) -> bytes:
    """A document with a paragraph for each line, the hidden property set."""
    runs = "".join(f"<w:p><w:r><w:rPr><w:vanish/></w:rPr><w:t>{line}</w:t></w:r></w:p>" for line in lines)
    start = "<w:p><w:r><w:t>A letter</w:t></w:r></w:p>"
    main = "application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml"
    relations = "application/vnd.openxmlformats-package.relationships+xml"
    parts = {
        "[Content_Types].xml": f'<Types xmlns="{TYPES}"><Default Extension="rels" ContentType="{relations}"/>'
        f'<Override PartName="/word/document.xml" ContentType="{main}"/></Types>',
        "_rels/.rels": f'<Relationships xmlns="{RELATIONS}"><Relationship Id="r1" Type="{OFFICE}"'
        ' Target="word/document.xml"/></Relationships>',
        "word/document.xml": f'<w:document xmlns:w="{WORDS}"><w:body>{start}{runs}</w:body></w:document>',
    }
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        for name, text in parts.items():
            archive.writestr(name, f'<?xml version="1.0" encoding="UTF-8"?>{text}')
    return data.getvalue()
