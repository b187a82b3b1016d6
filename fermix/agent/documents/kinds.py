"""What a file is, by its first bytes. Names lie: a picture is often called .jpg and is a PNG."""

from __future__ import annotations

from dataclasses import dataclass

PROBE_BYTES = 4_096
PICTURES = {"PNG": "image/png", "JPEG": "image/jpeg", "GIF": "image/gif", "WebP": "image/webp"}
"""The kinds that models can see, by their mime type."""

_LOCKED_OFFICE = "EncryptedPackage".encode("utf-16-le")


@dataclass(frozen=True, slots=True)
class Kind:
    """`name` goes into a sentence, e.g. "has no text to read: gzip archive"; in a document a reader may find text."""

    name: str
    is_document: bool = False


PDF = Kind("PDF", is_document=True)
ZIP = Kind("ZIP archive", is_document=True)  # Word and Excel files are such archives
OFFICE_97 = Kind("old Office document, or one with a password")
UNKNOWN = Kind("binary file")

_BY_START = (
    (b"\x89PNG\r\n\x1a\n", Kind("PNG")),
    (b"\xff\xd8\xff", Kind("JPEG")),
    (b"GIF87a", Kind("GIF")),
    (b"GIF89a", Kind("GIF")),
    (b"PK\x03\x04", ZIP),
    (b"PK\x05\x06", ZIP),
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", OFFICE_97),
    (b"\x7fELF", Kind("program (ELF)")),
    (b"MZ", Kind("program (Windows)")),
    (b"\xcf\xfa\xed\xfe", Kind("program (macOS)")),
    (b"\xca\xfe\xba\xbe", Kind("Java class or macOS program")),
    (b"\0asm", Kind("WebAssembly")),
    (b"SQLite format 3\0", Kind("SQLite database")),
    (b"\x1f\x8b", Kind("gzip archive")),
    (b"BZh", Kind("bzip2 archive")),
    (b"\xfd7zXZ\0", Kind("xz archive")),
    (b"\x28\xb5\x2f\xfd", Kind("zstd archive")),
    (b"7z\xbc\xaf\x27\x1c", Kind("7z archive")),
    (b"Rar!", Kind("RAR archive")),
    (b"BM", Kind("BMP picture")),
    (b"II*\0", Kind("TIFF picture")),
    (b"MM\0*", Kind("TIFF picture")),
    (b"\0\0\1\0", Kind("icon")),
    (b"ID3", Kind("MP3 recording")),
    (b"OggS", Kind("Ogg recording")),
    (b"fLaC", Kind("FLAC recording")),
    (b"\x1aE\xdf\xa3", Kind("Matroska or WebM video")),
    (b"\xff\xfe", Kind("UTF-16 text")),
    (b"\xfe\xff", Kind("UTF-16 text")),
)


_STARTS = tuple(start for start, _ in _BY_START)


def kind_of(head: bytes) -> Kind | None:
    """Say what a file is that begins so; None for text."""
    if b"%PDF-" in head[:1024]:
        return PDF
    if head[:4] == b"RIFF" and head[8:12] in (b"WEBP", b"WAVE"):
        return Kind("WebP") if head[8:12] == b"WEBP" else Kind("WAV recording")
    if not head.startswith(_STARTS) and b"\0" not in head[:PROBE_BYTES]:
        return None
    kind = next((kind for start, kind in _BY_START if head.startswith(start)), UNKNOWN)
    if kind.name in PICTURES or kind.is_document:
        return kind
    return _of_binary(head, kind) if b"\0" in head[:PROBE_BYTES] else None


def _of_binary(head: bytes, kind: Kind) -> Kind:
    """Letters that begin a text as well count only where zeros follow."""
    if head[4:8] == b"ftyp":
        return Kind("HEIC or AVIF picture" if head[8:12] in (b"heic", b"mif1", b"avif") else "MP4 recording or video")
    if head[257:262] == b"ustar":
        return Kind("tar archive")
    if kind is OFFICE_97 and _LOCKED_OFFICE in head:
        return Kind("Office document with a password")
    return kind
