"""`python -m bench [PART …]`: print every figure as one JSON line; exit 1 when one misses its bound."""

from __future__ import annotations

import sys

from bench import crowd, files, gateway, load, memory, screen, search, startup, turn, walls

PARTS = {
    "turn": turn.figures,
    "startup": startup.figures,
    "memory": memory.figures,
    "load": load.figures,
    "gateway": gateway.figures,
    "crowd": crowd.figures,
    "screen": screen.figures,
    "walls": walls.figures,
    "files": files.figures,
    "search": search.figures,
}


def main(names: list[str]) -> int:
    unknown = set(names) - PARTS.keys()
    if unknown:
        print(f"unknown part {unknown.pop()!r}; there are {', '.join(PARTS)}", file=sys.stderr)
        return 2
    missed = 0
    for name in names or PARTS:
        for figure in PARTS[name]():
            print(figure.line(), flush=True)
            missed += not figure.ok
    return 1 if missed else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
