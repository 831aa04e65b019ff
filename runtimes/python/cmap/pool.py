"""A pool, as a thin class over the calls of the C library.

The driving rule: make a call; take the outputs by :meth:`Pool.poll_output` until it returns None, and do what they say; ask
:meth:`Pool.poll_timeout` when to call :meth:`Pool.handle_timeout`. Times are nanoseconds from a moment of the caller's choice, as
:func:`time.monotonic_ns` has them; sockets are numbers of the caller's.

A pool serves one caller at a time, on any thread: the lock is the caller's.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from ctypes import addressof, byref, c_size_t, c_uint32, c_uint64, c_void_p, create_string_buffer, sizeof, string_at
from typing import Any

from cmap.abi import (
    NEVER,
    CheckOut,
    Condition,
    Connection,
    ErrorCode,
    Fault,
    Found,
    Output,
    Phase,
    Purpose,
    Reaction,
    TimeoutReason,
)
from cmap.library import LIBRARY

_SIZE = sizeof(Output)
_AT_CHECK_OUT = Output.check_out.offset
_AT_CONNECTION = Output.connection.offset
_USABLE = Condition.USABLE

_check_out = LIBRARY.cmap_pool_check_out
_check_in = LIBRARY.cmap_pool_check_in
_poll_output = LIBRARY.cmap_pool_poll_output


class Error(Exception):
    """A call that was refused, and has changed nothing."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(code, text)
        self.code = ErrorCode(code)
        self.text = text

    def __str__(self) -> str:
        return f"{self.text} ({self.code.name})"


class Pool:
    """The pool of one server. It is paused, until :meth:`ready`."""

    _free = LIBRARY.cmap_pool_free  # A finalizer may run after the module is gone.
    _pool: int | None = None

    def __init__(self, address: str, options: Mapping[str, Any] | None = None, *, now: int) -> None:
        """`address` is ``host:port``, ``[ipv6]:port`` or the path of a Unix socket; `options` are those of the header."""
        name, text = address.encode(), json.dumps(dict(options or {})).encode()
        pool, problem = c_void_p(), create_string_buffer(512)
        code = LIBRARY.cmap_pool_new(name, len(name), text, len(text), now, byref(pool), problem, len(problem))
        if code:
            raise Error(code, problem.value.decode(errors="replace"))
        self._pool = pool.value
        # Used again by each call, since there is one at a time.
        self._output = Output(_SIZE)
        self._at_output = addressof(self._output)
        self._check_out = CheckOut()
        self._at_check_out = addressof(self._check_out)
        self._u32, self._u64 = c_uint32(), c_uint64()
        self._lent, self._length = c_void_p(), c_size_t()

    def __del__(self) -> None:
        # In a process that was forked while a call was inside, the library leaves it.
        self._free(self._pool)

    # The beginning and the end.

    def ready(self, now: int) -> None:
        """The server answers: check-outs are served from now on."""
        self._expect(LIBRARY.cmap_pool_ready(self._pool, now))

    def close(self, now: int) -> None:
        """Closes the available connections, and fails every waiter."""
        self._expect(LIBRARY.cmap_pool_close(self._pool, now))

    def reset_after_fork(self, now: int) -> None:
        """This process was forked, and the pool was its parent's."""
        self._expect(LIBRARY.cmap_pool_reset_after_fork(self._pool, now))

    # Calls of those who use connections.

    def check_out(self, now: int, deadline: int = NEVER, affinity: int | None = None) -> Output:
        """Asks for a connection. The result is a DELIVER, or a NOTHING with the check-out: its answer comes among the outputs."""
        delivery = Output(_SIZE)
        key = None if affinity is None else c_uint64(affinity)
        code = _check_out(self._pool, now, deadline, key, self._at_check_out, addressof(delivery))
        if code:
            self._refuse(code)
        if not delivery.kind:
            delivery.check_out = self._check_out
        return delivery

    def cancel_check_out(self, now: int, check_out: CheckOut) -> Found:
        """Gives up a check-out. One that was delivered has to be checked in."""
        code = LIBRARY.cmap_pool_cancel_check_out(self._pool, now, addressof(check_out), byref(self._u32))
        self._expect(code)
        return Found(self._u32.value)

    def check_in(self, now: int, delivered: Output, condition: int = _USABLE) -> Output | None:
        """Ends a use of a connection, as it was delivered. The result is its delivery to the next waiter, if that came at once."""
        at, output = addressof(delivered), self._output
        code = _check_in(self._pool, now, at + _AT_CHECK_OUT, at + _AT_CONNECTION, delivered.socket, condition, self._at_output)
        if code:
            self._refuse(code)
        return Output.from_buffer_copy(output) if output.kind else None

    def set_purpose(self, delivered: Output, purpose: Purpose) -> None:
        """Says what a connection in use is for."""
        at = addressof(delivered)
        code = LIBRARY.cmap_pool_set_purpose(self._pool, at + _AT_CHECK_OUT, at + _AT_CONNECTION, purpose)
        self._expect(code)

    def clear(self, now: int, *, service: bytes | None = None, interrupt: bool = False, cause: str = "") -> None:
        """Makes all connections stale, or those of a service behind a load balancer, and pauses the pool."""
        _expect_service(service)
        text = cause.encode()
        self._expect(LIBRARY.cmap_pool_clear(self._pool, now, service, interrupt, text, len(text)))

    def end_affinity(self, now: int, key: int) -> None:
        """Forgets the connection of a key."""
        self._expect(LIBRARY.cmap_pool_end_affinity(self._pool, now, key))

    # What became of CONNECT, CHECK and REFRESH.

    def hello(self, now: int, connection: Connection, service: bytes) -> None:
        """The hello of a connection named its service. In load-balanced mode, call it before :meth:`established`."""
        _expect_service(service)
        self._expect(LIBRARY.cmap_pool_hello(self._pool, now, addressof(connection), service))

    def established(self, now: int, connection: Connection, socket: int) -> None:
        """A connection was established. The socket is the pool's from now on."""
        self._expect(LIBRARY.cmap_pool_established(self._pool, now, addressof(connection), socket))

    def establish_failed(
        self,
        now: int,
        connection: Connection,
        phase: Phase,
        fault: Fault,
        message: str,
        *,
        server_code: int = 0,
        reaction: Reaction = Reaction.BY_RULES,
    ) -> None:
        """Establishing a connection failed. There must be no password in the message."""
        text = message.encode(errors="replace")
        code = LIBRARY.cmap_pool_establish_failed(
            self._pool, now, addressof(connection), phase, fault, server_code, reaction, text, len(text)
        )
        self._expect(code)

    def checked(self, now: int, connection: Connection, is_alive: bool) -> None:
        """The answer to CHECK."""
        self._expect(LIBRARY.cmap_pool_checked(self._pool, now, addressof(connection), is_alive))

    def refreshed(self, now: int, connection: Connection, socket: int) -> None:
        """The answer to REFRESH: the ping was answered in time."""
        self._expect(LIBRARY.cmap_pool_refreshed(self._pool, now, addressof(connection), socket))

    def refresh_failed(
        self,
        now: int,
        connection: Connection,
        fault: Fault,
        message: str,
        *,
        server_code: int = 0,
        reaction: Reaction = Reaction.BY_RULES,
    ) -> None:
        """The answer to REFRESH: the ping was not answered, and the socket is closed."""
        text = message.encode(errors="replace")
        code = LIBRARY.cmap_pool_refresh_failed(self._pool, now, addressof(connection), fault, server_code, reaction, text, len(text))
        self._expect(code)

    def peer_closed(self, now: int, connection: Connection) -> None:
        """The peer of a connection hung up."""
        self._expect(LIBRARY.cmap_pool_peer_closed(self._pool, now, addressof(connection)))

    # Time, limits, and what renews connections.

    def handle_timeout(self, now: int) -> None:
        """Time has passed: does what is due."""
        self._expect(LIBRARY.cmap_pool_handle_timeout(self._pool, now))

    def resize(self, now: int, limits: Mapping[str, Any]) -> None:
        """Gives the pool new limits; those that are left out stay."""
        text = json.dumps(dict(limits)).encode()
        self._expect(LIBRARY.cmap_pool_resize(self._pool, now, text, len(text)))

    def replace_connections(self, now: int, over: int) -> None:
        """Ends the lives of all connections evenly over so many nanoseconds."""
        self._expect(LIBRARY.cmap_pool_replace_connections(self._pool, now, over))

    def renew_credential(self, now: int) -> None:
        """The credential was replaced: the connections of the old one retire."""
        self._expect(LIBRARY.cmap_pool_renew_credential(self._pool, now))

    def resume(self, now: int) -> None:
        """The machine was suspended, and goes on."""
        self._expect(LIBRARY.cmap_pool_resume(self._pool, now))

    def warm_up(self, now: int, connections: int | None = None) -> int:
        """Has as many connections established, or minPoolSize. The result is the number of the warm-up."""
        wanted = 2**32 - 1 if connections is None else connections
        self._expect(LIBRARY.cmap_pool_warm_up(self._pool, now, wanted, byref(self._u64)))
        return self._u64.value

    def cancel_warm_up(self, now: int, warm_up: int) -> Found:
        """Gives up a warm-up."""
        self._expect(LIBRARY.cmap_pool_cancel_warm_up(self._pool, now, warm_up, byref(self._u32)))
        return Found(self._u32.value)

    # What the pool wants.

    def poll_output(self) -> Output | None:
        """Takes the next output: call it after each call, until it returns None."""
        output = self._output
        code = _poll_output(self._pool, self._at_output)
        if code:
            self._refuse(code)
        if not output.kind:
            return None
        copy = Output.from_buffer_copy(output)
        if copy.text_length:
            copy.text = string_at(copy.lent_text, copy.text_length).decode()
        return copy

    def poll_timeout(self) -> tuple[int | None, TimeoutReason]:
        """When to call :meth:`handle_timeout`, or None; and why."""
        self._expect(LIBRARY.cmap_pool_poll_timeout(self._pool, byref(self._u64), byref(self._u32)))
        return _time(self._u64.value), TimeoutReason(self._u32.value)

    def next_check_out_timeout(self) -> int | None:
        """When time alone changes something for check-outs that wait, or None."""
        self._expect(LIBRARY.cmap_pool_next_check_out_timeout(self._pool, byref(self._u64)))
        return _time(self._u64.value)

    def observe(self, on: bool) -> None:
        """Whether there are events, or only actions. There are at first."""
        self._expect(LIBRARY.cmap_pool_observe(self._pool, on))

    # What can be asked.

    def is_stale(self, connection: Connection) -> bool:
        """Whether the pool was cleared since the connection was created."""
        self._expect(LIBRARY.cmap_pool_is_stale(self._pool, addressof(connection), byref(self._u32)))
        return bool(self._u32.value)

    def statistics(self, now: int) -> dict[str, Any]:
        """What the pool has done."""
        return json.loads(self._text(LIBRARY.cmap_pool_statistics(self._pool, now, *self._place())))

    def holders(self) -> dict[str, Any]:
        """Who holds connections, who waits, and what is being established; check-outs by their :func:`check_out_index`."""
        return json.loads(self._text(LIBRARY.cmap_pool_holders(self._pool, *self._place())))

    def snapshot(self) -> str:
        """The state of the machine, for a report of a bug."""
        return self._text(LIBRARY.cmap_pool_snapshot(self._pool, *self._place())).decode()

    def record_durations(self, on: bool) -> None:
        """Records from now on how long everything takes, for :meth:`statistics`; or forgets it."""
        self._expect(LIBRARY.cmap_pool_record_durations(self._pool, on))

    # Recordings.

    def start_recording(self, size: int = 0) -> None:
        """Records the calls from now on: the latest, in so many bytes, a gibibyte at most, or in a mebibyte with 0."""
        self._expect(LIBRARY.cmap_pool_start_recording(self._pool, size))

    def stop_recording(self) -> None:
        """Records no more, and forgets what was recorded."""
        self._expect(LIBRARY.cmap_pool_stop_recording(self._pool))

    def note_holder(self, check_out: CheckOut, holder: str) -> None:
        """Records who has made a check-out. Call it right after :meth:`check_out`. At most 4,096 different texts are kept."""
        text = holder.encode(errors="replace")
        self._expect(LIBRARY.cmap_pool_note_holder(self._pool, addressof(check_out), text, len(text)))

    def recording(self, unix_millis: int = 0, trigger: str = "") -> bytes:
        """What is recorded, as a file that ``cmap replay`` explains."""
        text = trigger.encode(errors="replace")
        return self._text(LIBRARY.cmap_pool_recording(self._pool, unix_millis, text, len(text), *self._place()))

    def _place(self) -> tuple[Any, Any]:
        return byref(self._lent), byref(self._length)

    def _text(self, code: int) -> bytes:
        self._expect(code)
        return string_at(self._lent, self._length.value)

    def _expect(self, code: int) -> None:
        if code:
            self._refuse(code)

    def _refuse(self, code: int) -> None:
        try_again = LIBRARY.cmap_pool_problem(self._pool, *self._place())
        text = "" if try_again else string_at(self._lent, self._length.value).decode()
        raise Error(code, text or "the call was refused")


def check_out_index(check_out: CheckOut) -> int:
    """A small number of a check-out that no other one has before this one has ended.

    It is free again as soon as the call that fails the check-out was made: its FAIL may still be among the outputs. Call
    :meth:`Pool.handle_timeout` and drain at the same `now` before :meth:`Pool.check_out`, or use the check-out itself as a key.
    """
    return LIBRARY.cmap_check_out_index(addressof(check_out))


def _time(nanos: int) -> int | None:
    return None if nanos == NEVER else nanos


def _expect_service(service: bytes | None) -> None:
    if service is not None and len(service) != 12:
        raise ValueError(f"the id of a service has 12 bytes, and this one {len(service)}")
