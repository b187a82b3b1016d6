"""The files of the frozen program, kept in place while the daemon runs for weeks.

They lie in a cache folder, and cleaners empty those (faults.md, PKG-02). What a turn needs is imported at start, so
nothing breaks at once; the launcher, asked now and then, puts back what is gone before anything else is wanted.
"""

from __future__ import annotations

import encodings.ascii
import encodings.idna
import encodings.latin_1
import encodings.unicode_escape
import encodings.utf_8_sig
import pwd
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from fermix.clock import Clock
from fermix.errors import Unavailable
from fermix.native.child import Limits, child_environment, run_child

LATE = (
    *(encodings.ascii, encodings.idna, encodings.latin_1, encodings.unicode_escape, encodings.utf_8_sig),
    pwd,
)
"""What is else imported with its first use: of a text, of a name on the net, of a `~`."""

CHECK_EVERY_S = 600.0  # a check is a few stat calls and costs a millisecond
UNPACK_LIMITS = Limits(timeout_s=120.0, output_bytes=16_384)  # unpacking takes seconds, on a bad disk many
PLACES = ("HOME", "XDG_CACHE_HOME")


class UnpackedFiles:
    """A service of the frozen daemon. `program` starts the one file that holds everything."""

    name = "program files"

    def __init__(self, program: Sequence[str], environ: Mapping[str, str], clock: Clock) -> None:
        self._program = tuple(program)
        self._environment = child_environment(environ, PLACES) | {"FERMIX_VERIFY_ONLY": "1"}
        self._clock = clock

    async def run(self, started: Callable[[], None]) -> None:
        """Check for ever. Raises: Unavailable when the files cannot be put back."""
        await self._restore()
        started()
        while True:
            await self._clock.sleep(CHECK_EVERY_S)
            await self._restore()

    async def _restore(self) -> None:
        try:
            done = await run_child(self._program, cwd=Path("/"), env=self._environment, limits=UNPACK_LIMITS)
        except OSError as error:
            raise Unavailable(f"cannot start {self._program[0]}: {error.strerror}") from error
        if done.exit_code != 0:
            raise Unavailable(f"the program's files are gone: {done.output.decode('utf-8', 'replace').strip()}")
