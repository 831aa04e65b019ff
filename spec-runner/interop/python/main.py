"""Runs the checks that the input file names, and prints a line for each.

Usage: main.py INPUT. The README one folder up describes the input, the lines and the exit status.
"""

import json
import sys

import checks
import sets
from connect import Servers, Skip


def main() -> int:
    with open(sys.argv[1], encoding="utf-8") as file:
        inputs = json.load(file)
    servers = Servers(inputs["servers"])
    results = [run(name, servers) for name in inputs["checks"]]
    return 0 if all(results) else 1


def run(name: str, servers: Servers) -> bool:
    """Whether the check did not fail."""
    check = {**checks.ALL, **sets.ALL}.get(name)
    try:
        if check is None:
            raise LookupError("this program has no such check")
        check(servers)
        print("PASS", name, flush=True)
    except Skip as reason:
        print(f"SKIP {name}: {reason}", flush=True)
    except Exception as error:  # Whatever it is, the other checks still run.
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        print(f"FAIL {name}: {reason}", flush=True)
        return False
    return True


if __name__ == "__main__":
    sys.exit(main())
