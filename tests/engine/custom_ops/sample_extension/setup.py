"""The one step that pyproject.toml cannot say: the C++ kernel is compiled into the wheel."""

from pathlib import Path

from drivetrain.engine.custom_ops import compile_cpp
from setuptools import setup  # type: ignore[import-untyped]
from setuptools.command.build_py import build_py  # type: ignore[import-untyped]


class Build(build_py):  # type: ignore[misc]
    def run(self) -> None:
        super().run()
        compile_cpp("acme_ops/soft_clip.cc", Path(self.build_lib) / "acme_ops" / "soft_clip.so")


setup(cmdclass={"build_py": Build}, has_ext_modules=lambda: True)
