"""The synchronous pool: one lock around the machine, and threads that connect.

Connections are not established in the thread that waits for one: it may get another sooner, and would sit in `connect()` meanwhile.
"""

from __future__ import annotations

import threading
import time
from typing import Any

from pymongo.lock import _create_lock
from pymongo.synchronous import pool as pymongo_pool

from cmap import Output
from cmap.pymongo.shared import Adapter, Establishment, Waiter, _number, process
from cmap.pymongo.translation import now


class _Waiter(Waiter):
    """A thread that waits."""

    __slots__ = ("_asleep",)

    def __init__(self, output: Output, handler: Any) -> None:
        super().__init__(output, handler)
        self._asleep = threading.Lock()
        self._asleep.acquire()

    def wake(self) -> None:
        self._asleep.release()

    def wait(self) -> bool:
        """Returns whether it was woken, and did not reach its limit."""
        if self.limit is None:
            return self._asleep.acquire()
        return self._asleep.acquire(timeout=max(0, self.limit - now()) / 1e9)


class CmapPool(Adapter, pymongo_pool.Pool):  # type: ignore[misc]
    """pymongo's pool, by cmap's machine. What connects, and what is told to pymongo, is inherited."""

    def __new__(cls, *arguments: Any, **options: Any) -> Any:
        """A pool of a monitor is pymongo's own."""
        if cls is CmapPool and options.get("is_sdam"):
            return _PymongosPool(*arguments, **options)
        return super().__new__(cls)

    def __init__(self, address: Any, options: Any, is_sdam: bool = False, client_id: Any = None) -> None:
        super().__init__(address, options, is_sdam, client_id)
        self._publishing = _create_lock()
        self._publisher: int | None = None
        self._is_handed_over = False
        self._begin()
        self._leave()

    def ready(self) -> None:
        with self.lock:
            self._become_ready()
        self._leave()

    def _reset(
        self,
        close: bool,
        pause: bool = True,
        service_id: Any = None,
        interrupt_connections: bool = False,
    ) -> None:
        with self.lock:
            self._clear(close, pause, service_id, interrupt_connections)
        self._leave()

    def remove_stale_sockets(self, reference_generation: int) -> None:
        with self.lock:
            work = self._maintain()
        self._leave()
        if work:
            self._establish(work)
            self._raise_unheard()

    def _get_conn(self, checkout_started_time: float, handler: Any = None) -> Any:
        if self._is_handed_over:
            # The thread that has got the connection runs first. Otherwise it would wake, only to wait for the interpreter's lock.
            self._is_handed_over = False
            time.sleep(0)
        if self._process is not process[0]:
            self.reset_without_pause()
        with self.lock:
            conn, waiter = self._start_check_out(_Waiter, handler)
        if waiter is None:
            try:
                self._leave()
            except BaseException:
                self.checkin(conn)
                raise
            return conn
        try:
            self._leave()
            while not waiter.wait():
                with self.lock:
                    self._handle_timeout(waiter)
                self._leave()
            self._leave()
            return self._end_of_wait(waiter, checkout_started_time)
        except BaseException:
            self._roll_back(waiter)
            raise

    def _roll_back(self, waiter: _Waiter) -> None:
        with self.lock:
            conn = self._give_up(waiter)
        if conn:
            self.checkin(conn)
        self._leave()

    def checkin(self, conn: Any) -> None:
        txn, cursor = conn.pinned_txn, conn.pinned_cursor
        conn.active = conn.pinned_txn = conn.pinned_cursor = False
        self._pinned_sockets.discard(conn)
        if self._process is not process[0]:
            self.reset_without_pause()
        is_inside = False
        try:
            with self.lock:
                is_inside = True
                self._is_handed_over |= self._end_use(conn, txn, cursor)
        finally:
            # gevent kills a greenlet where it waits for a lock.
            if not is_inside:
                with self.lock:
                    self._end_use(conn, txn, cursor)
        self._leave()

    def recording(self, trigger: str = "") -> bytes:
        with self.lock:
            return super().recording(trigger)

    def _leave(self) -> None:
        """After each call, without the lock: connects, closes and publishes."""
        while self._to_connect:
            try:
                work = self._to_connect.popleft()
            except IndexError:
                break
            self._connect_in_background(work)
        # In this order: what was popped is being published as long as the lock is held.
        if self._to_publish or self._publishing.locked():
            self._publish_all()

    def _publish_all(self) -> None:
        """Publishes what there is in its order, and returns after all of it was published, by whichever thread.

        A listener that calls the pool is inside already.
        """
        if self._publisher == threading.get_ident():
            return
        with self._publishing:
            self._publisher = threading.get_ident()
            try:
                while self._to_publish:
                    publish, arguments, waiter = self._to_publish.popleft()
                    if publish is None:
                        arguments[0].close_conn(None)
                    else:
                        self._publish(publish, arguments, waiter)
            finally:
                self._publisher = None

    def _connect_in_background(self, work: Establishment) -> None:
        thread = threading.Thread(target=work.context.run, args=(self._establish, work), name="pymongo_connect_thread", daemon=True)
        try:
            thread.start()
        except RuntimeError:
            # There are no more threads: the interpreter ends, or is one that may not have any.
            work.context.run(self._establish, work)

    def _establish(self, work: Establishment) -> None:
        token = _number.set(work.output.number)
        try:
            conn = self.connect(handler=work.recorder)  # type: ignore[arg-type]
        except BaseException as error:
            with self.lock:
                self._not_established(work, error)
        else:
            with self.lock:
                self._established(work, conn)
        finally:
            _number.reset(token)
        self._leave()


_PymongosPool = pymongo_pool.Pool
