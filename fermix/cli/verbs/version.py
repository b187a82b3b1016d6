"""`fermix version`."""

from __future__ import annotations

from fermix import __version__


def main(argv: list[str]) -> int:
    if argv in (["-h"], ["--help"]):
        print("usage: fermix version\n\nPrint the version of this program.")
        return 0
    if argv:
        from fermix.cli.output import wrong_use

        return wrong_use("version", f"takes no arguments, got {argv[0]!r}")
    print(f"fermix {__version__}")
    return 0
