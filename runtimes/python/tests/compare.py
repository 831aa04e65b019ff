"""Runs pymongo's own tests with its pool and with ours, against the same server, and prints both next to each other.

    tests/compare [ROW..]

It fails if a test passes on pymongo's pool and not on ours, but for those that REASONS names. A test that differs runs again on both, since
some depend on time; it differs if it does so each time.

CMAP_PROGRAMS names a folder that has cmap and libcmap.so already, which are built otherwise. The virtual environment and pymongo's
sources are kept in target/pymongo-tests.
"""

import os
import re
import subprocess
import sys
import tarfile
import time
import venv
import xml.etree.ElementTree as ElementTree
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

VERSION = "4.20.1"
PACKAGES = [f"pymongo=={VERSION}", "pytest==9.2.0", "pytest-asyncio==1.5.0", "pytest-timeout==2.4.0"]
REPETITIONS = 3

TESTS = Path(__file__).resolve().parent
ROOT = TESTS.parents[2]
FOLDER = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "pymongo-tests"
PYTHON = FOLDER / "venv/bin/python"
SOURCES = FOLDER / f"pymongo-{VERSION}"


@dataclass
class Row:
    """A line of the table: which tests, against which server."""

    name: str
    files: list[str]
    server: list[str]


SEVERAL = """client_backpressure collection csot cursor discovery_and_monitoring fork logger connection_logging monitor monitoring
    retryable_reads retryable_reads_unified retryable_writes retryable_writes_unified sdam_monitoring_spec server_selection_in_window
    session sessions_unified topology transactions transactions_unified"""
SET = """connections_survive_primary_stepdown_spec replica_set_reconfig client discovery_and_monitoring fork retryable_reads_unified
    retryable_writes_unified session server_selection_in_window transactions transactions_unified"""
ROWS = [
    Row("pooling", ["test_pooling.py"], []),
    Row("connection_monitoring", ["test_connection_monitoring.py"], []),
    Row("client", ["test_client.py"], []),
    Row("several", [f"test_{name}.py" for name in SEVERAL.split()], []),
    Row("replica_set", [f"test_{name}.py" for name in SET.split()], ["--replica-set", "rs", "--members", "3"]),
    Row("load_balancer", ["test_load_balancer.py"], ["--load-balanced"]),
    Row("asynchronous", ["asynchronous/test_pooling.py", "asynchronous/test_connection_monitoring.py"], []),
    Row(
        "asynchronous_client",
        ["asynchronous/test_client.py", "asynchronous/test_async_cancellation.py", "asynchronous/test_concurrency.py"],
        [],
    ),
]

_ACCOUNTS = "its own conditions in the pool count how often pymongo's code enters and notifies them"
REASONS = {
    "test_get_conn_reused_connection_rolls_back_on_cancel": "its own set in the pool raises when pymongo's code adds to it",
    "test_checkout_error_accounting_no_double_decrement": _ACCOUNTS,
    "test_checkout_error_accounting_on_kill_during_acquire": _ACCOUNTS,
    "test_checkout_error_accounting_on_kill_during_pending_cleanup": _ACCOUNTS,
    "test_checkout_error_accounting_on_kill_during_pending_notify": _ACCOUNTS,
    "test_5_check_out_fails_connection_error": "it replaces `connect`, and wants no event of the connection that the pool has created",
    "test_transaction_pool_cleared_error_labelled_transient": "it assigns `state`, which is the machine's",
}


def main() -> None:
    rows = [row for row in ROWS if not sys.argv[1:] or row.name in sys.argv[1:]]
    prepare()
    programs = build()
    lines, named, unknown = [], [], []
    for row in rows:
        began = time.monotonic()
        own, ours = (run(row, programs, on_ours=on_ours) for on_ours in (False, True))
        differ = [name for name, outcome in own.items() if outcome == "passed" and ours.get(name) != "passed"]
        again = []
        for _ in range(REPETITIONS - 1):
            again = repeated(row, differ, programs)
            differ = [name for name in differ if name in again]
        named += [name for name in differ if reason(name)]
        unknown += [f"{name} ({ours.get(name, 'missing')})" for name in differ if not reason(name)]
        if len(own) != len(ours):
            unknown.append(f"{row.name}: {len(own)} tests ran on pymongo's pool, and {len(ours)} on ours")
        lines.append((row.name, " ".join(row.server) or "standalone", count(own), count(ours), len(differ), time.monotonic() - began))
        print(f"{row.name}: {count(own)} on pymongo's pool, {count(ours)} on ours", file=sys.stderr, flush=True)
    print("\n| tests | server | pymongo's pool | ours | differ | seconds |\n|---|---|---|---|---|---|")
    for name, server, own, ours, differ, seconds in lines:
        print(f"| {name} | {server} | {own} | {ours} | {differ} | {seconds:.0f} |")
    print("\npassed/failed/skipped at the first run; those that differ do so each time:")
    for name in named:
        print(f"{name}: {reason(name)}")
    for line in unknown:
        print(f"NOT NAMED: {line}")
    # A suite that could not run passes nothing.
    if unknown or any(own.startswith("0/") for _, _, own, *_ in lines):
        sys.exit(1)


def reason(name: str) -> str | None:
    return REASONS.get(re.sub(r"\[.*", "", name.rsplit("::", 1)[1]))


def count(outcomes: dict[str, str]) -> str:
    counts = Counter(outcomes.values())
    return f"{counts['passed']}/{counts['failed']}/{counts['skipped']}"


def prepare() -> None:
    """The packages, and pymongo's sources, which have its tests."""
    if not PYTHON.exists():
        venv.create(FOLDER / "venv", with_pip=True)
    pip = [PYTHON, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "install", *PACKAGES], check=True)
    if not SOURCES.exists():
        subprocess.run([*pip, "download", "--no-deps", "--no-binary", "pymongo", "--dest", FOLDER, f"pymongo=={VERSION}"], check=True)
        with tarfile.open(FOLDER / f"pymongo-{VERSION}.tar.gz") as archive:
            archive.extractall(FOLDER, filter="data")


def build() -> Path:
    if programs := os.environ.get("CMAP_PROGRAMS"):
        return Path(programs)
    command = ["cargo", "build", "--quiet", "--release", "--package", "cmap-c", "--package", "cmap-cli"]
    subprocess.run(command, cwd=ROOT, check=True)
    return Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release"


def repeated(row: Row, names: list[str], programs: Path) -> list[str]:
    """Those that pass on pymongo's pool and not on ours once more."""
    tests = sorted({re.sub(r"\[.*", "", name) for name in names})
    if not tests:
        return []
    # pytest wants paths, and JUnit's file has modules.
    paths = [f"{path.replace('.', '/')}.py::{rest}" for path, rest in (split_module(name) for name in tests)]
    own, ours = (run(row, programs, on_ours=on_ours, tests=paths) for on_ours in (False, True))
    return [name for name in names if own.get(name) == "passed" and ours.get(name) != "passed"]


def split_module(name: str) -> tuple[str, str]:
    path, test = name.split("::")
    module, suite = path.rsplit(".", 1)
    return module.removeprefix("test."), f"{suite}::{test}"


def run(row: Row, programs: Path, *, on_ours: bool, tests: list[str] | None = None) -> dict[str, str]:
    """The outcome of each test. A server of its own, so that nothing is left of the run before."""
    server = Path(os.environ.get("CMAP_TEST_SERVER", programs / "cmap"))
    serve = subprocess.Popen([server, "serve", "--port", "0", *row.server], stdout=subprocess.PIPE, text=True)
    try:
        members = int(row.server[-1]) if "--members" in row.server else 1
        # The first line of each member, and nothing after them that would fill the pipe.
        listening = [serve.stdout.readline() for _ in range(members)]
        address = listening[0].split()[-1]
        outcomes = FOLDER / f"{row.name}.xml"
        outcomes.unlink(missing_ok=True)
        command = [PYTHON, "-m", "pytest", *(f"test/{name}" for name in tests or row.files), "-o", "addopts=", "-p", "no:cacheprovider"]
        command += ["--quiet", "--timeout=120", f"--junitxml={outcomes}", *(["-p", "on_cmap"] if on_ours else [])]
        log = FOLDER / f"{row.name}.{'cmap' if on_ours else 'pymongo'}.log"
        with log.open("w") as file:
            # That some fail is no error: the test server refuses much.
            subprocess.run(command, cwd=SOURCES, env=environment(address, row, programs), stdout=file, stderr=file)
        # Of a run that was killed there are none.
        return read(outcomes) if outcomes.exists() else {}
    finally:
        serve.kill()
        serve.wait()


def environment(address: str, row: Row, programs: Path) -> dict[str, str]:
    host, port = address.rsplit(":", 1)
    more = {
        "DB_IP": host,
        "DB_PORT": port,
        "PYTHONPATH": os.pathsep.join([str(TESTS), str(TESTS.parent)]),
        "PYTHONDONTWRITEBYTECODE": "1",
        "CMAP_LIBRARY": os.environ.get("CMAP_LIBRARY", str(programs / "libcmap.so")),
    }
    if "--load-balanced" in row.server:
        uri = f"mongodb://{address}/?loadBalanced=true"
        more |= {"TEST_LOAD_BALANCER": "1", "SINGLE_MONGOS_LB_URI": uri, "MULTI_MONGOS_LB_URI": uri}
    return os.environ | more


def read(path: Path) -> dict[str, str]:
    outcomes = {}
    for case in ElementTree.parse(path).iter("testcase"):
        parts = {part.tag for part in case}
        outcome = "failed" if parts & {"failure", "error"} else "skipped" if "skipped" in parts else "passed"
        outcomes[f"{case.get('classname')}::{case.get('name')}"] = outcome
    return outcomes


if __name__ == "__main__":
    main()
