"""The C extension and the record of its hash; everything else is in pyproject.toml."""

import hashlib
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext


class RecordingBuild(build_ext):
    """Write the SHA-256 of what was built beside it, for `fermix/native/verify.py`."""

    def run(self) -> None:
        super().run()
        built = [Path(self.get_ext_fullpath(extension.name)) for extension in self.extensions]
        lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in built]
        built[0].with_name("SHA256SUMS").write_text("".join(lines), encoding="ascii")


setup(
    cmdclass={"build_ext": RecordingBuild},
    ext_modules=[
        Extension(
            "fermix.native._native",
            sources=["fermix/native/_native.c"],
            define_macros=[("Py_LIMITED_API", "0x030B0000")],
            py_limited_api=True,
            extra_compile_args=["-O2", "-Wall", "-Wextra", "-Werror"],
        )
    ],
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
