"""The embedded test server, for as long as a test needs it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from types import TracebackType


def program() -> str:
    """`cmap`: the program that CMAP_TEST_SERVER names, or one in the folder CMAP_PROGRAMS."""
    folder = Path(os.environ.get("CMAP_PROGRAMS", "target/debug"))
    return os.environ.get("CMAP_TEST_SERVER", str(folder / "cmap"))


class Server:
    """`cmap serve`."""

    def __init__(self, *options: str) -> None:
        self._process = subprocess.Popen([program(), "serve", "--port", "0", *options], stdout=subprocess.PIPE, text=True)
        assert self._process.stdout
        self.address = self._process.stdout.readline().split()[-1]
        self.uri = f"mongodb://{self.address}/"

    def stop(self) -> None:
        """Ends it."""
        self._process.kill()
        self._process.communicate()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()
