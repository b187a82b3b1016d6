"""`fermix revoke`: take back what was granted, at once."""

from __future__ import annotations

from fermix.cli.change import change, parse, whole

USAGE = """fermix revoke path FOLDER
       fermix revoke env NAME
       fermix revoke command NAME"""


def main(argv: list[str]) -> int:
    description = "Take back a folder, a variable or a program. It is done at once."
    stated = parse("revoke", argv, usage=USAGE, description=description)
    words = [*stated.words]
    if words[:1] == ["path"]:
        words[1:] = [whole(path) for path in words[1:]]
    return change("revoke", ["revoke", *words], as_json=stated.as_json)
