"""`fermix grant`: open a folder, allow a variable, make a program a tool; after a yes."""

from __future__ import annotations

from fermix.cli.change import change, parse, whole

USAGE = """fermix grant path FOLDER
       fermix grant env NAME
       fermix grant command NAME [-- PROGRAM ARGUMENT ...]"""


def main(argv: list[str]) -> int:
    stated = parse(
        "grant", argv, usage=USAGE,
        description="Open a folder to the agent, let commands have a variable, or make a program a tool of its own. "
        "You are shown the whole change and asked.",
    )  # fmt: skip
    words = [*stated.words]
    if words[:1] == ["path"]:
        words[1:] = [whole(path) for path in words[1:]]
    return change("grant", ["grant", *words], as_json=stated.as_json)
