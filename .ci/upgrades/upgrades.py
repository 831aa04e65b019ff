"""Upgrades a hub again and again while writers of official drivers go on. Usage: upgrades.py FOLDER-OF-PROGRAMS [DRIVER..]."""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from pymongo import MongoClient

UPGRADES = int(os.environ.get("CMAP_UPGRADES", "50"))
WRITERS = int(os.environ.get("CMAP_WRITERS", "200"))
# How long the old process lets clients go on.
DRAIN = 10
# The least pause between two upgrades.
PAUSE = 0.5

INTEROP = Path("spec-runner/interop").resolve()
PROGRAMS = {
    "python": [INTEROP / "python/.venv/bin/python", INTEROP / "python/writers.py"],
    "node": ["node", INTEROP / "node/writers.js"],
    "go": [INTEROP / "go/target/writers"],
    "java": ["java", "-cp", INTEROP / "java/target/interop.jar", "interop.Writers"],
}


class Hub:
    """A hub before a replica set of three, and its successors."""

    def __init__(self, programs: Path, folder: Path):
        self.program, self.folder = programs / "cmap-hub", folder
        self.errors = (folder / "errors").open("w")
        serve = [programs / "cmap", "serve", "--port", "0", "--replica-set", "rs", "--members", "3"]
        self.servers, listening = self.start(serve, 3)
        members = ",".join(listening)
        config = folder / "hub.toml"
        config.write_text(
            f'drain-seconds = {DRAIN}\nupstream.uri = "mongodb://{members}/?replicaSet=rs&maxPoolSize=20"\n'
            'listen = [{ address = "127.0.0.1:0" }]\ncontrol.path = "control.sock"\n'
        )
        self.first, [self.address] = self.start([self.program, "--config", config], 1)
        self.process = self.first.pid

    def start(self, command: list, listeners: int) -> tuple[subprocess.Popen, list[str]]:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=self.errors, text=True)
        listening = [process.stdout.readline().removeprefix("listening on ").strip() for _ in range(listeners)]
        return process, listening

    def order(self, order: str) -> dict:
        command = [self.program, "ctl", "--socket", self.folder / "control.sock", order]
        return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)

    def upgrade(self) -> None:
        answer = self.order("upgrade")
        assert answer["upgraded"] and answer["process"] != self.process, answer
        self.process = answer["process"]

    def commands(self) -> int:
        return self.order("status")["counts"]["commands"]

    def uri(self, retry_writes: str) -> str:
        return f"mongodb://{self.address}/?loadBalanced=true&retryWrites={retry_writes}"

    def end(self) -> None:
        os.kill(self.process, 15)
        self.servers.terminate()


def run(hub: Hub, driver: str, retry_writes: str, upgrades: int) -> bool:
    name = f"{driver}_{retry_writes}"
    command = [*PROGRAMS[driver], hub.uri(retry_writes), str(WRITERS), name]
    writers = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    time.sleep(3)
    for _ in range(upgrades):
        hub.upgrade()
        time.sleep(PAUSE)
        # A driver repeats an operation once, so none may meet two upgrades: by then each writer has come to the new process.
        while writers.poll() is None and hub.commands() < 3 * WRITERS:
            time.sleep(0.05)
    # Until the last of the old processes has ended.
    time.sleep(DRAIN + 1)
    met = json.loads(writers.communicate()[0].splitlines()[-1])
    collection = MongoClient(hub.uri("true")).upgrades[name]
    [found] = collection.aggregate([{"$group": {"_id": None, "count": {"$sum": 1}, "times": {"$sum": "$times"}}}])
    done, errors = met["acknowledged"], met["errors"]
    failed = sum(errors.values())
    print(f"{driver}, retryWrites={retry_writes}: {upgrades} upgrades, {done}, {failed} errors", flush=True)
    for text, count in sorted(errors.items()):
        print(f"  {count} times {' '.join(text.split())}")
    # An update that failed may be of a document whose insert has failed, too.
    lost = found["count"] < done["insert"] or found["times"] < done["update"] - errors_of(errors, "insert")
    doubled = found["times"] > done["update"] + errors_of(errors, "update")
    if lost or doubled:
        print(f"  there are {found['count']} documents, which were changed {found['times']} times")
    return not lost and not doubled and (failed == 0 or retry_writes == "false")


def errors_of(errors: dict[str, int], step: str) -> int:
    return sum(count for text, count in errors.items() if text.startswith(step))


def main(programs: Path, drivers: list[str]) -> bool:
    with tempfile.TemporaryDirectory() as folder:
        hub, is_good = Hub(programs, Path(folder)), False
        try:
            good = [run(hub, driver, "true", UPGRADES) for driver in drivers]
            good += [run(hub, driver, "false", 5) for driver in drivers]
            is_good = all(good)
        finally:
            hub.end()
            if not is_good:
                sys.stderr.write((Path(folder) / "errors").read_text()[-2000:])
    return is_good


if __name__ == "__main__":
    sys.exit(0 if main(Path(sys.argv[1]), sys.argv[2:] or list(PROGRAMS)) else 1)
