"""Finds the shared library, and sees that it is of this package's version.

It is the file that the environment variable ``CMAP_LIBRARY`` names, or one beside this module, or the system's.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import os
import sys
from pathlib import Path

from cmap import abi

VERSION = "0.1.0"
"""The version of this package, and of the library that it needs: ABI 0 may change with each."""

_NAMES = {
    "darwin": ("libcmap.0.dylib", "libcmap.dylib"),
    "win32": ("cmap.dll",),
}.get(sys.platform, ("libcmap.so.0", "libcmap.so"))


class LibraryError(ImportError):
    """The shared library is missing, is another one, or is of another version."""


def _places() -> list[str]:
    """Where the library may be. A variable that is set leaves no choice."""
    named = os.environ.get("CMAP_LIBRARY")
    if named:
        return [named]
    here = Path(__file__).parent
    beside = [str(here / name) for name in _NAMES if (here / name).is_file()]
    # What the system calls so may be another library: that of corosync has this name.
    found = ctypes.util.find_library("cmap")
    return [*beside, *_NAMES, *([found] if found else [])]


def _load() -> ctypes.PyDLL:
    problems = []
    for place in _places():
        try:
            # PyDLL keeps the interpreter's lock: calls are too short to let go of it, and no thread is inside when the process is forked.
            library = ctypes.PyDLL(place)
        except OSError as error:
            problems.append(f"{place}: {error}")
            continue
        if hasattr(library, "cmap_version_number"):
            return library
        problems.append(f"{place}: another library")
    raise LibraryError(
        "the shared library of cmap is missing: build it by `cargo build --release -p cmap-c`, and set CMAP_LIBRARY to its path, "
        f"put it beside {__file__}, or install it ({'; '.join(problems)})"
    )


def _check(library: ctypes.PyDLL) -> None:
    library.cmap_version_number.restype = ctypes.c_uint32
    number = library.cmap_version_number()
    found = f"{number // 1_000_000}.{number // 1000 % 1000}.{number % 1000}"
    if found != VERSION:
        raise LibraryError(f"the shared library of cmap is of version {found}, and this package needs {VERSION}")


LIBRARY = _load()
_check(LIBRARY)
abi.declare(LIBRARY)
