"""What pymongo says in the machine's words, and the other way round: options, times, errors, events."""

from __future__ import annotations

import itertools
import math
import os
import random
import sys
import time
from collections.abc import Callable
from typing import Any

from bson.objectid import ObjectId
from pymongo import _csot
from pymongo.errors import ConnectionFailure, NetworkTimeout, OperationFailure
from pymongo.monitoring import ConnectionCheckOutFailedReason, ConnectionClosedReason
from pymongo.pool_options import PoolOptions

import cmap
from cmap import NEVER, Closed, ErrorCode, Failed, Fault, Flag, Kind, Output

now = time.monotonic_ns
"""The machine's time. pymongo's deadlines are by the same clock."""

_pool_numbers = itertools.count(1)

_CLOSED = {
    Closed.STALE: ConnectionClosedReason.STALE,
    Closed.IDLE: ConnectionClosedReason.IDLE,
    Closed.ERROR: ConnectionClosedReason.ERROR,
    Closed.POOL_CLOSED: ConnectionClosedReason.POOL_CLOSED,
    Closed.SURPLUS: ConnectionClosedReason.IDLE,
}

_TIMED_OUT = (
    "Wait queue timeout elapsed without a connection becoming available",
    ConnectionCheckOutFailedReason.TIMEOUT,
)
_BROKEN = (
    "An error occurred while trying to establish a new connection",
    ConnectionCheckOutFailedReason.CONN_ERROR,
)
_FAILED = {
    Failed.POOL_CLOSED: ("Connection pool was closed", ConnectionCheckOutFailedReason.POOL_CLOSED),
    Failed.WAIT_QUEUE_TIMEOUT: _TIMED_OUT,
    Failed.DEADLINE: _TIMED_OUT,
}


def machine_for(address: Any, opts: PoolOptions, check_interval: float | None) -> cmap.Pool:
    options: dict[str, Any] = {
        "maxPoolSize": opts.max_pool_size or 0,
        "minPoolSize": opts.min_pool_size,
        "maxConnecting": opts.max_connecting,
        "loadBalanced": bool(opts.load_balanced),
        # Whoever calls `remove_stale_sockets` has an interval of its own.
        "maintenanceMS": 1,
        "checkAfterIdleMS": millis(check_interval),
        # pymongo's own rules of overload hold.
        "backoff": False,
        "seed": random.getrandbits(64),
        "poolNumber": next(_pool_numbers) % 2**32,
    }
    if opts.max_idle_time_seconds is not None:
        options["maxIdleTimeMS"] = millis(opts.max_idle_time_seconds)
    if opts.wait_queue_timeout:
        options["waitQueueTimeoutMS"] = millis(opts.wait_queue_timeout)
    host, port = address
    name = host if port is None else f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    try:
        return cmap.Pool(name, options, now=now())
    except cmap.Error as refused:
        if refused.code != ErrorCode.ADDRESS:
            raise
        # pymongo takes whatever it is given, and fails when it connects. The machine has the address for recordings only.
        return cmap.Pool("unknown.invalid:27017", options, now=now())


def millis(seconds: float | None) -> int:
    """Never, as -1, for None. Less than a millisecond is one, since none may mean no limit."""
    return -1 if seconds is None else math.ceil(round(seconds * 1000, 6))


def operation_deadline() -> int:
    """The end of the operation that pymongo's `timeout` or timeoutMS bounds."""
    deadline = _csot.get_deadline()
    return NEVER if deadline == float("inf") else int(deadline * 1e9)


def _start(output: Output) -> float:
    """When what an event tells of has begun, as pymongo's telemetry wants to know."""
    return time.monotonic() - output.nanos / 1e9


def fault_of(error: BaseException) -> tuple[Fault, int]:
    if isinstance(error, NetworkTimeout):
        return Fault.TIMEOUT, 0
    if isinstance(error, ConnectionFailure):
        return Fault.NETWORK, 0
    if isinstance(error, OperationFailure):
        return Fault.SERVER, error.code or 0
    return Fault.OTHER, 0


def place_of_caller() -> str:
    """Where the application asks for a connection: the innermost function that is neither pymongo's nor this package's."""
    frame = sys._getframe(1)
    while frame.f_back and frame.f_globals.get("__name__", "").split(".")[0] in _OURS:
        frame = frame.f_back
    code = frame.f_code
    return f"{code.co_qualname} ({os.path.basename(code.co_filename)}:{frame.f_lineno})"


_OURS = ("cmap", "pymongo", "gridfs", "contextlib")


def _cleared(events: Any, output: Output) -> tuple[Any, ...]:
    service = ObjectId(bytes(output.service)) if output.flags & Flag.SERVICE else None
    return events.pool_cleared, service, bool(output.flags & Flag.INTERRUPT)


def _failed(events: Any, output: Output) -> tuple[Any, ...]:
    return events.checkout_failed, *_FAILED.get(output.reason, _BROKEN), _start(output)


EVENTS: dict[int, Callable[[Any, Output], tuple[Any, ...]]] = {
    Kind.EVENT_POOL_READY: lambda events, _: (events.pool_ready,),
    Kind.EVENT_POOL_CLEARED: _cleared,
    Kind.EVENT_POOL_CLOSED: lambda events, _: (events.pool_closed,),
    Kind.EVENT_CONNECTION_CREATED: lambda events, output: (events.connection_created, output.number),
    Kind.EVENT_CONNECTION_READY: lambda events, output: (events.connection_ready, output.number, _start(output)),
    Kind.EVENT_CONNECTION_CLOSED: lambda events, output: (events.connection_closed, output.number, _CLOSED[output.reason]),
    Kind.EVENT_CHECK_OUT_STARTED: lambda events, _: (events.checkout_started,),
    Kind.EVENT_CHECK_OUT_FAILED: _failed,
    Kind.EVENT_CHECKED_OUT: lambda events, output: (events.checkout_succeeded, output.number, _start(output)),
    Kind.EVENT_CHECKED_IN: lambda events, output: (events.checked_in, output.number),
}
"""The method of pymongo's telemetry that publishes an event, and its arguments. A pool's creation is published by pymongo itself."""
