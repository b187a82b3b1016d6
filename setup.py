"""The C parts and the record of their hashes; everything else is in pyproject.toml."""

import hashlib
import sys
from distutils.errors import LinkError
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

CONFINE = ("confine", "confine_view", "confine_rules")
WARNINGS = ["-O2", "-Wall", "-Wextra", "-Werror"]


class RecordingBuild(build_ext):
    """Build `confine` beside the extension, and write the SHA-256 of both for `fermix/native/verify.py`."""

    def run(self) -> None:
        super().run()
        built = [Path(self.get_ext_fullpath(extension.name)) for extension in self.extensions]
        if sys.platform == "linux":
            built.append(self.build_confine(built[0].parent))
        lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in built]
        built[0].with_name("SHA256SUMS").write_text("".join(lines), encoding="ascii")

    def build_confine(self, folder: Path) -> Path:
        objects = self.compiler.compile(
            [f"fermix/native/{name}.c" for name in CONFINE], output_dir=self.build_temp, extra_postargs=WARNINGS
        )
        try:  # without a loader to run first it starts in half the time
            self.compiler.link_executable(objects, "confine", output_dir=str(folder), extra_postargs=["-static"])
        except LinkError:
            self.compiler.link_executable(objects, "confine", output_dir=str(folder))
        return folder / "confine"


setup(
    cmdclass={"build_ext": RecordingBuild},
    ext_modules=[
        Extension(
            "fermix.native._native",
            sources=["fermix/native/_native.c"],
            define_macros=[("Py_LIMITED_API", "0x030B0000")],
            py_limited_api=True,
            extra_compile_args=WARNINGS,
        )
    ],
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
