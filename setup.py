"""The C extension; everything else is in pyproject.toml."""

from setuptools import Extension, setup

setup(
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
