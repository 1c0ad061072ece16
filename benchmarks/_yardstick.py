"""Yardsticks in C, compiled at run time with the system's compiler in a folder that goes away."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

_FOLDER = Path(__file__).parent / "yardsticks"


def compiled(name: str) -> ctypes.CDLL:
    """yardsticks/NAME.c as a library; ends the benchmark with a message where there is no cc."""
    compiler = shutil.which("cc")
    if compiler is None:
        sys.exit("cc: found no C compiler on PATH, needed one as the yardstick; install gcc")
    with tempfile.TemporaryDirectory() as folder:
        built = Path(folder) / f"{name}.so"
        flags = ("-O3", "-march=native", "-shared", "-fPIC")
        subprocess.run([compiler, *flags, "-o", built, _FOLDER / f"{name}.c"], check=True)
        return ctypes.CDLL(str(built))
