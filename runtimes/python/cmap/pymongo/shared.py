"""What the synchronous and the asynchronous pool share: all that is done between a call of the machine and the end of its drain.

    check out ─┐                     ┌─▶ to connect: threads or tasks
    check in  ─┼─▶ machine ─▶ drain ─┼─▶ answers: to those who wait
    clear ..  ─┘                     └─▶ to publish: sockets to close and events, in one order

A caller has the lock (of threads; tasks do not await meanwhile), and publishes after it has let go of it. `conns`, `active_sockets` and
their like are pymongo's names, which the rest of pymongo and its tests read.
"""

from __future__ import annotations

import collections
import contextlib
import os
import time
from collections.abc import Callable
from contextvars import Context, ContextVar, copy_context
from dataclasses import dataclass, field
from typing import Any, NoReturn, TypeVar

from bson.objectid import ObjectId
from pymongo import _csot
from pymongo._telemetry import _CmapTelemetry
from pymongo.errors import AutoReconnect, ConnectionFailure, PyMongoError
from pymongo.helpers_shared import _get_timeout_details
from pymongo.logger import _CONNECTION_LOGGER, _is_debug_enabled
from pymongo.pool_options import PoolOptions
from pymongo.pool_shared import PoolState, _PoolClosedError, _raise_connection_failure

import cmap
from cmap import NEVER, Condition, ErrorCode, Failed, Kind, Output, Phase, Reaction
from cmap.pymongo.translation import EVENTS, fault_of, machine_for, millis, now, operation_deadline, place_of_caller

_DELIVER = int(Kind.DELIVER)
# The number of the connection that is being established here, which `connect()` asks for.
_number: ContextVar[int | None] = ContextVar("cmap_connection_number", default=None)

# Another object in a child that was forked: to compare costs less than to ask for the process's id.
process = [object()]
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: process.__setitem__(0, object()))


class Waiter:
    """Who has not got a connection at once."""

    __slots__ = ("answer", "conn", "context", "failure", "handler", "key", "limit", "output", "problem")

    def __init__(self, output: Output, handler: Any) -> None:
        self.output, self.key, self.handler = output, bytes(output.check_out), handler
        # Of timeouts and of the application's own: the connection is established for it.
        self.context: Context = copy_context()
        # When its time may be up, by the machine's clock.
        self.limit: int | None = None
        self.answer: Output | None = None
        self.conn: Any = None
        self.failure: EstablishFailure | None = None
        # What a listener has raised.
        self.problem: BaseException | None = None

    def wake(self) -> None:
        """The answer has come."""
        raise NotImplementedError


W = TypeVar("W", bound=Waiter)


@dataclass
class Recorder:
    """Stands in for the handler of a check-out while its connection is established: the check-out may get another one meanwhile."""

    client: Any
    conn: Any = None

    def contribute_socket(self, conn: Any, completed_handshake: bool = True) -> None:
        self.conn = conn


@dataclass(frozen=True)
class EstablishFailure:
    """Why a connection could not be established."""

    error: BaseException
    conn: Any
    generation: int


# Each is equal to itself alone: a deque finds it without running code of Python, in which another thread would get its turn.
@dataclass(eq=False)
class Establishment:
    """A connection to establish: the machine's output, and what is known of the check-out that caused it."""

    output: Output
    recorder: Recorder | None = None
    context: Context = field(default_factory=Context)
    generation: int = 0


class Adapter:
    """Mixed into both of pymongo's pools."""

    recording_bytes = 0

    # What pymongo's classes have, and what is used of it here.
    address: Any
    opts: PoolOptions
    conns: collections.deque[Any]
    active_contexts: set[Any]
    gen: Any
    is_writable: bool | None
    state: int
    ntxns: int
    ncursors: int
    _telemetry: Any
    _raise_wait_queue_timeout: Callable[[float], NoReturn]

    _machine: cmap.Pool
    _interval: float | None

    def _begin(self) -> None:
        """After pymongo's `__init__`: the pool has published its creation, and publishes by itself from now on."""
        # Connections publish by the pool's telemetry, too, which the machine's events stand for.
        self._events, self._telemetry = self._telemetry, _CmapTelemetry(None, self.address, None, False, False)
        self._renew()

    def _renew(self) -> None:
        """A machine without connections: at first, and in a child that was forked."""
        self._waiters: dict[bytes, Waiter] = {}
        self._answered: list[Waiter] = []
        self._connections: dict[int, Any] = {}
        self._failures: dict[int, EstablishFailure] = {}
        self._to_connect: collections.deque[Establishment] = collections.deque()
        self._to_publish: collections.deque[tuple[Callable[..., None] | None, tuple[Any, ...], Waiter | None]] = collections.deque()
        self._unheard: EstablishFailure | None = None
        self.pid, self._process = os.getpid(), process[0]
        self._pending = self.active_sockets = self.operation_count = 0
        self._observed = True
        self._machine = machine = machine_for(self.address, self.opts, self._interval)
        if self.recording_bytes:
            machine.start_recording(self.recording_bytes)
        if self.state == PoolState.READY:
            machine.ready(now())
        self._drain()
        # Of a beginning, pymongo's `__init__` has told.
        self._to_publish.clear()

    # Names that pymongo assigns and tests read.

    @property
    def requests(self) -> int:
        """Connections in use and those being established."""
        return self.active_sockets + self._pending

    @requests.setter
    def requests(self, _: int) -> None:
        """pymongo's `__init__` sets it."""

    @property
    def next_connection_id(self) -> int:
        """The number that `connect()` takes: that of the connection being established here."""
        return _number.get() or self._next_connection_id

    @next_connection_id.setter
    def next_connection_id(self, number: int) -> None:
        self._next_connection_id = number

    @property
    def _check_interval_seconds(self) -> float | None:
        """After how long without use a connection is checked; 0 always, None never."""
        return self._interval

    @_check_interval_seconds.setter
    def _check_interval_seconds(self, interval: float | None) -> None:
        self._interval = interval
        # pymongo's `__init__` sets it before there is a machine. Afterwards only tests do, while no other thread is inside: here is no lock.
        if hasattr(self, "_machine"):
            self._machine.resize(now(), {"checkAfterIdleMS": millis(interval)})

    # Calls. The caller has the lock.

    def _observe(self) -> None:
        """Events cost time, and the level of logging may change."""
        events = self._events
        wanted = events._should_publish or (events._log and _is_debug_enabled(_CONNECTION_LOGGER))
        if wanted != self._observed:
            self._observed = wanted
            self._machine.observe(wanted)

    def _start_check_out(self, make_waiter: Callable[[Output, Any], W], handler: Any) -> tuple[Any, W | None]:
        """Asks for a connection. It is the first of the two, or else the second waits for it."""
        self.operation_count += 1
        self._observe()
        started, deadline = now(), operation_deadline() if _csot.get_timeout() else NEVER
        output = self._machine.check_out(started, deadline)
        if self.recording_bytes:
            self._machine.note_holder(output.check_out, place_of_caller())
        is_delivered = output.kind == _DELIVER
        if is_delivered and not self._observed:
            conn = self._take(output)
            self._drain()
            return conn, None
        waiter = make_waiter(output, handler)
        timeout = self.opts.wait_queue_timeout
        limit = min(deadline, started + millis(timeout) * 1_000_000) if timeout else deadline
        waiter.limit = None if limit == NEVER else limit
        self._waiters[waiter.key] = waiter
        if is_delivered:
            self._deliver(output)
        self._drain()
        return None, waiter

    def _handle_timeout(self, waiter: Waiter) -> None:
        """A check-out's time is up. While its own connection is established, waitQueueTimeoutMS does not count, and it waits on."""
        self._machine.handle_timeout(now())
        self._drain()
        waiter.limit = self._machine.next_check_out_timeout()

    def _give_up(self, waiter: Waiter) -> Any:
        """Ends a check-out that failed, or was cut off while it waited. Its connection, if it has one by now."""
        if waiter.answer is None:
            self._machine.cancel_check_out(now(), waiter.output.check_out)
            self._drain()
        self._waiters.pop(waiter.key, None)
        if not waiter.conn:
            self.operation_count -= 1
        return waiter.conn

    def _end_of_wait(self, waiter: Waiter, started: float) -> Any:
        """The connection of a check-out that was answered; or its error, which is raised."""
        if waiter.problem:
            raise waiter.problem
        if waiter.conn:
            self._waiters.pop(waiter.key, None)
            return waiter.conn
        failure, answer = waiter.failure, waiter.answer
        if failure:
            # What SDAM makes of the error depends on how far the connection got.
            if failure.conn and waiter.handler:
                waiter.handler.contribute_socket(failure.conn, completed_handshake=False)
            raise failure.error
        assert answer
        if answer.reason == Failed.POOL_CLOSED:
            raise _PoolClosedError("Attempted to check out a connection from closed connection pool")
        if answer.reason in (Failed.WAIT_QUEUE_TIMEOUT, Failed.DEADLINE):
            self._raise_wait_queue_timeout(started)
        cause = AutoReconnect("connection pool paused" if answer.reason == Failed.POOL_CLEARED else answer.text)
        _raise_connection_failure(self.address, cause, timeout_details=_get_timeout_details(self.opts))

    def _end_use(self, conn: Any, txn: bool, cursor: bool) -> bool:
        """Checks a connection in. One that this pool did not deliver, as that of a parent that was forked, is closed.

        Returns whether somebody was waiting for it.
        """
        if txn:
            self.ntxns -= 1
        elif cursor:
            self.ncursors -= 1
        known: Any = self._connections.get(conn.id)
        if known is not conn:
            self._to_publish.append((None, (conn,), None))
            return False
        lease = conn.__dict__.pop("_cmap_lease", None)
        if lease is None:
            # It is checked in already.
            return False
        self.active_sockets -= 1
        self.operation_count -= 1
        ended = now()
        if conn.closed:
            delivery = self._machine.check_in(ended, lease, Condition.ERRORED)
        else:
            conn.last_checkin_time = ended / 1e9
            conn.is_writable = bool(self.is_writable)
            delivery = self._machine.check_in(ended, lease)
            if not delivery:
                self.conns.appendleft(conn)
        if delivery:
            self._deliver(delivery)
        return self._drain()

    def _become_ready(self) -> None:
        if self.state == PoolState.PAUSED:
            self.state = PoolState.READY
            self._observe()
            self._machine.ready(now())
            self._drain()

    def _clear(self, close: bool, pause: bool, service_id: ObjectId | None, interrupt: bool) -> None:
        """What pymongo's `_reset` does. A pool that pauses for nobody, as that of a fork, is ready again at once."""
        if self.state == PoolState.CLOSED:
            return
        self._observe()
        self.gen.inc(service_id)
        if self._process is not process[0]:
            self._leave_parent()
            if not close:
                return
        if close:
            self.state = PoolState.CLOSED
            self._machine.close(now())
            self._drain()
            return
        machine = self._machine
        if not self.opts.load_balanced:
            services: list[bytes | None] = [] if service_id else [None]
        else:
            services = [service.binary for service in ([service_id] if service_id else self.gen._generations)]
        for service in services:
            machine.clear(now(), service=service, interrupt=interrupt)
            self._drain()
        # Closes what has become stale, without waiting for the next maintenance.
        machine.handle_timeout(now())
        self._drain()
        if services and self.state == PoolState.READY and not self.opts.load_balanced:
            if pause and self.opts.pause_enabled:
                self.state = PoolState.PAUSED
            else:
                machine.ready(now())
                self._drain()

    def _leave_parent(self) -> None:
        """This process was forked: the connections and the waiters are the parent's."""
        idle, self.conns = self.conns, collections.deque()
        self._renew()
        if self.state == PoolState.READY:
            self._to_publish.append((self._events.pool_cleared, (None, False), None))
        self._to_publish.extend((None, (conn,), None) for conn in idle)

    def _maintain(self) -> Establishment | None:
        """Each second, and not in the application's threads. One of the connections to establish, if there are any."""
        if self.state != PoolState.READY:
            return None
        self._raise_unheard()
        self._observe()
        self._machine.handle_timeout(now())
        self._drain()
        # Whoever leaves the pool takes work without the lock.
        for work in self._to_connect.copy():
            if work.recorder is None:
                with contextlib.suppress(ValueError):
                    self._to_connect.remove(work)
                    return work
        return None

    def _raise_unheard(self) -> None:
        """The error of a connection that nobody waited for, so that SDAM learns of it: unless the pool was cleared since."""
        failure, self._unheard = self._unheard, None
        if failure and failure.generation == self.gen.get_overall():
            raise failure.error

    def recording(self, trigger: str = "") -> bytes:
        """What was recorded, as a file. The caller has the lock."""
        return self._machine.recording(time.time_ns() // 1_000_000, trigger)

    # What became of a connection that was to be established.

    def _established(self, work: Establishment, conn: Any) -> None:
        self._pending -= 1
        self.active_contexts.discard(conn.cancel_context)
        output, number = work.output, work.output.number
        self._connections[number] = conn
        self.conns.appendleft(conn)
        try:
            if self.opts.load_balanced:
                self._machine.hello(now(), output.connection, conn.service_id.binary)
            self._machine.established(now(), output.connection, number)
        except cmap.Error:
            # The pool has given it up meanwhile.
            self._close(number)
        self._drain()

    def _not_established(self, work: Establishment, error: BaseException) -> None:
        self._pending -= 1
        number = work.output.number
        conn = work.recorder and work.recorder.conn
        failure = self._failures[number] = EstablishFailure(error, conn, work.generation)
        fault, code = fault_of(error)
        phase = Phase.AUTHENTICATE if conn else Phase.CONNECT
        text = str(error) if isinstance(error, ConnectionFailure) else type(error).__name__
        try:
            self._machine.establish_failed(
                now(),
                work.output.connection,
                phase,
                fault,
                text,
                server_code=code,
                # SDAM clears the pool, by what the caller of the check-out tells it.
                reaction=Reaction.KEEP_POOL,
            )
        except cmap.Error as refused:
            if refused.code != ErrorCode.NOT_PENDING:
                raise
        self._drain()
        # Whoever waited for it may have got another connection meanwhile.
        if self._failures.pop(number, None) and isinstance(error, PyMongoError):
            self._unheard = failure

    # The drain.

    def _drain(self) -> bool:
        """Carries out what the machine says. Returns whether somebody who waited was answered."""
        poll = self._machine.poll_output
        while output := poll():
            if carry_out := _CARRY_OUT.get(output.kind):
                carry_out(self, output)
        if not self._answered:
            return False
        # Not before: whoever is awake publishes what the drain has found, and returns.
        while self._answered:
            self._answered.pop().wake()
        return True

    def _connect(self, output: Output) -> None:
        self._pending += 1
        work = Establishment(output, generation=self.gen.get_overall())
        waiter = self._waiters.get(bytes(output.check_out))
        if waiter:
            work.context = waiter.context.copy()
            if waiter.handler:
                work.recorder = Recorder(waiter.handler.client)
        self._to_connect.append(work)

    def _check(self, output: Output) -> None:
        conn = self._connections.get(output.number)
        self._machine.checked(now(), output.connection, conn is not None and not conn.conn_closed())

    def _deliver(self, output: Output) -> None:
        waiter = self._waiters[bytes(output.check_out)]
        waiter.answer = output
        waiter.conn = self._take(output)
        self._answered.append(waiter)

    def _fail(self, output: Output) -> None:
        waiter = self._waiters[bytes(output.check_out)]
        waiter.answer = output
        if output.reason == Failed.ESTABLISH:
            waiter.failure = self._failures.pop(output.number, None)
        self._answered.append(waiter)

    def _take(self, output: Output) -> Any:
        """A connection is in use from now on."""
        conn = self._connections[output.number]
        self._remove(conn)
        self.active_sockets += 1
        conn._cmap_lease = output
        conn.active = True
        return conn

    def _remove(self, conn: Any) -> None:
        """From those that are available, if it is one of them. The machine takes the newest nearly always."""
        conns = self.conns
        if conns:
            if conns[0] is conn:
                conns.popleft()
            elif conn in conns:
                conns.remove(conn)

    def _close_socket(self, output: Output) -> None:
        self._close(output.number)

    def _close(self, number: int) -> None:
        conn = self._connections.pop(number, None)
        if conn:
            self._remove(conn)
            self._to_publish.append((None, (conn,), None))

    def _interrupt(self, output: Output) -> None:
        conn = self._connections.get(output.number)
        # `connect()` keeps the contexts of all that are being established, and a clear interrupts all of these.
        contexts = [conn.cancel_context] if conn else self.active_contexts
        for context in contexts:
            context.cancel()

    # Events.

    def _note_event(self, output: Output) -> None:
        publish, *arguments = EVENTS[output.kind](self._events, output)
        # Of an exception of a listener, the check-out learns that the event names.
        waiter = self._waiters.get(bytes(output.check_out)) if output.check_out else None
        self._to_publish.append((publish, tuple(arguments), waiter))

    def _publish(self, publish: Callable[..., None], arguments: tuple[Any, ...], waiter: Waiter | None) -> None:
        """Publishes an event. An exception of a listener belongs to the check-out that the event names."""
        try:
            publish(*arguments)
        except BaseException as problem:
            if waiter is None:
                raise
            waiter.problem = problem


_CARRY_OUT: dict[int, Callable[[Adapter, Output], None]] = {
    Kind.CONNECT: Adapter._connect,
    Kind.CHECK: Adapter._check,
    Kind.DELIVER: Adapter._deliver,
    Kind.FAIL: Adapter._fail,
    Kind.CLOSE: Adapter._close_socket,
    Kind.INTERRUPT: Adapter._interrupt,
    **dict.fromkeys(EVENTS, Adapter._note_event),
}
