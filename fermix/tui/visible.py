"""Foreign text made fit for a terminal. Called for everything that a model, a tool or a person wrote.

What comes out holds no escape sequence and no control character, so it can neither move the cursor nor
shift a border. Nothing here is markup: widgets take the result as plain text.
"""

from __future__ import annotations

import re
import unicodedata

TAB_CELLS = 4
_ESCAPES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # CSI, colours among them
    r"|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)"  # OSC, DCS, SOS, PM, APC with their text
    r"|\x1b(?:[ -/]+[0-~]|[0-OQ-WYZ\\`-~])"  # the short ones
)
_SURROGATES = re.compile("[\ud800-\udfff]")
_HIDDEN_JOINERS = "\u200c\u200d"  # join letters and emoji; harmless in prose, shown where a command is judged


def _symbols() -> dict[int, str]:
    table = {code: chr(0x2400 + code) for code in range(0x20) if chr(code) not in "\n\t"}
    table |= {0x7F: "\u2421"}
    table |= {code: _named(code) for code in (*range(0x80, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A))}
    table |= {code: _named(code) for code in (0x200E, 0x200F, 0x2028, 0x2029)}
    return table


def _named(code: int) -> str:
    return f"⟨U+{code:04X}⟩"


_SYMBOLS = _symbols()


def prose(text: str) -> str:
    """Strip escape sequences, show other control and direction characters as symbols, expand tabs."""
    return _shown(_ESCAPES.sub("", text))


def exact(text: str) -> str:
    """Show every character that could hide something, escape sequences and zero-width ones included.

    For what is going to run: a tool's name and arguments.
    """
    shown = _shown(text)
    if shown.isascii():
        return shown
    return "".join(_named(ord(char)) if _is_hidden(char) else char for char in shown)


def one_line(text: str, *, limit: int) -> str:
    """The first line of prose, at most `limit` characters, with an ellipsis when something is missing."""
    shown = prose(text).strip()
    line = shown.split("\n", 1)[0][:limit].rstrip()
    return line if line == shown else f"{line}…"


def cut(text: str, *, limit: int) -> str:
    """At most `limit` characters; says how many are missing."""
    return text if len(text) <= limit else f"{text[:limit]}… (+{len(text) - limit:,} characters)"


def _shown(text: str) -> str:
    plain = _SURROGATES.sub("\ufffd", text.replace("\r\n", "\n"))
    return plain.translate(_SYMBOLS).expandtabs(TAB_CELLS)


def _is_hidden(char: str) -> bool:
    return char in _HIDDEN_JOINERS or unicodedata.category(char) == "Cf"
