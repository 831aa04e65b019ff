"""Measures pymongo's pool and ours next to each other, in one run.

    python -m tests.measure [SECONDS OF A ROUND]

Threads share few connections, and use each for half a millisecond: how long the unluckiest check-out waits, and how many there are
a second. And what a check-out and a check-in cost while nobody waits: in each pool, and of the machine alone, by ctypes and in C (pair.c;
`cc` compiles it). CMAP_LIBRARY and CMAP_TEST_SERVER are set as for the tests, with a library that was built with `--release`.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from pymongo.pool_options import PoolOptions
from pymongo.synchronous.pool import Pool as PymongosPool

import cmap
from cmap import library
from cmap.pymongo.synchronous import CmapPool
from tests.server import Server

THREADS, CONNECTIONS, USE = 20, 5, 0.0005
PAIRS, ROUNDS = 20_000, 5
HERE = Path(__file__).resolve().parent


def main() -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 2.0
    print(f"Python {sys.version.split()[0]}, {os.cpu_count()} CPUs, {os.getloadavg()[0]} processes at work in the minute before")
    with Server() as server:
        host, port = server.address.rsplit(":", 1)
        pools = {
            name: made((host, int(port)), PoolOptions(max_pool_size=CONNECTIONS))
            for name, made in (("pymongo's pool", PymongosPool), ("cmap's pool", CmapPool))
        }
        for pool in pools.values():
            pool.ready()
        print(f"{THREADS} threads, {CONNECTIONS} connections, {USE * 1000} ms of use, {ROUNDS} rounds of {seconds} s in turn:")
        rounds = [{name: share(pool, seconds) for name, pool in pools.items()} for _ in range(ROUNDS)]
        longest = {name: max(one[name][0] for one in rounds) for name in pools}
        rates = {name: statistics.median(one[name][1] for one in rounds) for name in pools}
        for name in pools:
            print(f"  {name}: longest wait {longest[name] * 1000:.1f} ms, {rates[name]:.0f} uses/s")
        theirs, ours = pools
        print(f"  longest wait: {longest[ours] / longest[theirs]:.3f} of pymongo's; uses: {rates[ours] / rates[theirs]:.2f} of pymongo's")
        print("a check-out and a check-in while nobody waits, the best of", ROUNDS, "rounds:")
        costs = {name: pair(pool) for name, pool in pools.items()}
        costs["the machine by ctypes, drains and clock included"] = machine_pair()
        costs["the machine in C, drains and clock included"] = machine_pair_in_c()
        for name, cost in costs.items():
            print(f"  {name}: {cost:.2f} us, {cost / costs[theirs]:.3f} of pymongo's pool")
        for pool in pools.values():
            pool.close()


def share(pool: Any, seconds: float) -> tuple[float, float]:
    """The longest wait, and uses per second."""
    hold_all(pool)
    waits: list[list[float]] = [[] for _ in range(THREADS)]
    end = time.monotonic() + seconds

    def work(own: list[float]) -> None:
        while (began := time.monotonic()) < end:
            with pool.checkout():
                own.append(time.monotonic() - began)
                time.sleep(USE)

    threads = [threading.Thread(target=work, args=(own,)) for own in waits]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    every = [wait for own in waits for wait in own]
    return max(every), len(every) / seconds


def hold_all(pool: Any) -> None:
    """Has all connections established."""
    held = [pool.checkout() for _ in range(CONNECTIONS)]
    for one in held:
        one.__enter__()
    for one in held:
        one.__exit__(None, None, None)


def pair(pool: Any) -> float:
    """Microseconds."""
    return best(lambda: enter_and_leave(pool))


def enter_and_leave(pool: Any) -> None:
    with pool.checkout():
        pass


def machine_pair() -> float:
    """Microseconds, of the calls as the adapter makes them: events are off."""
    pool = cmap.Pool("db.example:27017", {"checkAfterIdleMS": -1}, now=0)
    pool.observe(False)
    pool.ready(0)
    first = pool.check_out(1)
    while output := pool.poll_output():
        if output.kind == cmap.Kind.CONNECT:
            pool.established(2, output.connection, 1)
        if output.kind == cmap.Kind.DELIVER:
            first = output
    pool.check_in(3, first)

    def once() -> None:
        delivered = pool.check_out(time.monotonic_ns())
        pool.poll_output()
        pool.check_in(time.monotonic_ns(), delivered)
        pool.poll_output()

    return best(once)


def machine_pair_in_c() -> float:
    """Microseconds."""
    compiler = shutil.which("cc")
    if not compiler:
        return float("nan")
    with tempfile.TemporaryDirectory() as folder:
        # Programs look for the library by the name of its ABI.
        shared, program = Path(folder, "libcmap.so.0"), Path(folder, "pair")
        shared.symlink_to(Path(library.LIBRARY._name).resolve())
        flags = ["-std=gnu99", "-O2", "-I", HERE.parents[1] / "c/include", f"-Wl,-rpath,{folder}"]
        subprocess.run([compiler, *flags, HERE / "pair.c", shared, "-o", program], check=True)
        return min(float(subprocess.check_output([program, str(10 * PAIRS)])) for _ in range(ROUNDS))


def best(once: Any) -> float:
    times = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        for _ in range(PAIRS):
            once()
        times.append(time.perf_counter() - began)
    return min(times) / PAIRS * 1e6


if __name__ == "__main__":
    main()
