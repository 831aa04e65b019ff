"""What `abi` repeats of the header is what the header says."""

from __future__ import annotations

import ctypes
import re
import unittest
from pathlib import Path

from cmap import abi, library

ROOT = Path(__file__).resolve().parents[3]
HEADER = ROOT / "runtimes/c/include/cmap.h"

# The names of the header that do not follow from the names of the classes here.
PREFIXES = {
    abi.ErrorCode: "CMAP_ERROR_",
    abi.Kind: "CMAP_",
    abi.Closed: "CMAP_CLOSED_",
    abi.Failed: "CMAP_FAILED_",
    abi.Cold: "CMAP_COLD_",
    abi.Flag: "CMAP_FLAG_",
    abi.Condition: "CMAP_CONDITION_",
    abi.Purpose: "CMAP_PURPOSE_",
    abi.Phase: "CMAP_PHASE_",
    abi.Fault: "CMAP_FAULT_",
    abi.Reaction: "CMAP_REACTION_",
    abi.Found: "CMAP_",
    abi.TimeoutReason: "CMAP_TIMEOUT_",
}
NOT_HERE = {"CMAP_OK", "CMAP_ABI", "CMAP_NEVER"}


@unittest.skipUnless(HEADER.is_file(), "this is not the repository")
class TestHeader(unittest.TestCase):
    def setUp(self) -> None:
        self.header = HEADER.read_text()

    def test_the_numbers_are_the_headers(self) -> None:
        theirs = {name: int(value) for name, value in re.findall(r"#define (CMAP_\w+) (\d+)\b", self.header)}
        theirs = {name: value for name, value in theirs.items() if name not in NOT_HERE and "VERSION" not in name}

        ours = {prefix + member.name: int(member) for kind, prefix in PREFIXES.items() for member in kind}
        ours["CMAP_WARM"] = ours.pop("CMAP_COLD_NOT_COLD")

        self.assertEqual(ours, theirs)

    def test_the_functions_are_the_headers(self) -> None:
        text = re.sub(r"//[^\n]*|/\*.*?\*/", "", self.header, flags=re.DOTALL)
        declared = re.findall(r"\b(?:int32_t|uint32_t|void) (cmap_\w+)\(([^)]*)\)", text)
        theirs = {name: 0 if arguments == "void" else arguments.count(",") + 1 for name, arguments in declared}

        ours = {name: len(arguments) for name, arguments in abi.ARGUMENTS.items()}

        self.assertEqual(ours | {"cmap_version_number": 0, "cmap_pool_free": 1, "cmap_check_out_index": 1}, theirs)

    def test_the_struct_has_the_headers_fields(self) -> None:
        body = re.search(r"struct cmap_output \{(.*?)\n\};?", self.header, re.DOTALL)
        assert body
        fields = re.findall(r"^\s*[\w ]+[ *](\w+)(?:\[\d+\])?;", body[1], re.MULTILINE)

        self.assertEqual([name.removeprefix("lent_") for name, _ in abi.Output._fields_], fields)
        self.assertEqual(ctypes.sizeof(abi.Output) % 8, 0)

    def test_the_versions_are_those_of_the_workspace(self) -> None:
        workspace = re.search(r'^version = "(.*)"', (ROOT / "Cargo.toml").read_text(), re.MULTILINE)
        package = re.search(r'^version = "(.*)"', (ROOT / "runtimes/python/pyproject.toml").read_text(), re.MULTILINE)
        assert workspace and package

        self.assertEqual([library.VERSION, package[1]], [workspace[1]] * 2)
