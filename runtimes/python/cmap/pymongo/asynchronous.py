"""The asynchronous pool: tasks that connect, and no lock.

Nothing is awaited between a call of the machine and the end of its drain.
"""

from __future__ import annotations

import asyncio
from contextvars import Context
from typing import Any

from pymongo.asynchronous import pool as pymongo_pool
from pymongo.lock import _async_create_lock

from cmap import Output
from cmap.pymongo.shared import Adapter, Establishment, Waiter, _number, process
from cmap.pymongo.translation import now


class _Waiter(Waiter):
    """A task that waits."""

    __slots__ = ("_woken",)

    def __init__(self, output: Output, handler: Any) -> None:
        super().__init__(output, handler)
        self._woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def wake(self) -> None:
        if not self._woken.done():
            self._woken.set_result(None)

    async def wait(self) -> bool:
        """Returns whether it was woken, and did not reach its limit."""
        timeout = None if self.limit is None else max(0, self.limit - now()) / 1e9
        done, _ = await asyncio.wait((self._woken,), timeout=timeout)
        return bool(done)


class AsyncCmapPool(Adapter, pymongo_pool.Pool):  # type: ignore[misc]
    """pymongo's asynchronous pool, by cmap's machine. What connects, and what is told to pymongo, is inherited."""

    def __new__(cls, *arguments: Any, **options: Any) -> Any:
        """A pool of a monitor is pymongo's own."""
        if cls is AsyncCmapPool and options.get("is_sdam"):
            return _PymongosPool(*arguments, **options)
        return super().__new__(cls)

    def __init__(self, address: Any, options: Any, is_sdam: bool = False, client_id: Any = None) -> None:
        super().__init__(address, options, is_sdam, client_id)
        self._publishing = _async_create_lock()
        self._publisher: asyncio.Task[Any] | None = None
        # Of tasks that nobody refers to, the loop does not see to it that they live.
        self._tasks: set[asyncio.Task[Any]] = set()
        self._begin()

    async def ready(self) -> None:
        self._become_ready()
        await self._leave()

    async def _reset(
        self,
        close: bool,
        pause: bool = True,
        service_id: Any = None,
        interrupt_connections: bool = False,
    ) -> None:
        self._clear(close, pause, service_id, interrupt_connections)
        await self._leave()

    async def remove_stale_sockets(self, reference_generation: int) -> None:
        work = self._maintain()
        await self._leave()
        if work:
            await self._establish(work)
            self._raise_unheard()
        else:
            # Whoever calls this in a loop lets the tasks that connect get on.
            await asyncio.sleep(0)

    async def _get_conn(self, checkout_started_time: float, handler: Any = None) -> Any:
        if self._process is not process[0]:
            await self.reset_without_pause()
        conn, waiter = self._start_check_out(_Waiter, handler)
        if waiter is None:
            try:
                await self._leave()
            except BaseException:
                await self.checkin(conn)
                raise
            return conn
        try:
            await self._leave()
            while not await waiter.wait():
                self._handle_timeout(waiter)
                await self._leave()
            await self._leave()
            return self._end_of_wait(waiter, checkout_started_time)
        except BaseException:
            # A task that is cancelled may be so again meanwhile.
            await asyncio.shield(self._spawn(self._roll_back(waiter)))
            raise

    async def _roll_back(self, waiter: _Waiter) -> None:
        conn = self._give_up(waiter)
        if conn:
            await self.checkin(conn)
        await self._leave()

    async def checkin(self, conn: Any) -> None:
        txn, cursor = conn.pinned_txn, conn.pinned_cursor
        conn.active = conn.pinned_txn = conn.pinned_cursor = False
        self._pinned_sockets.discard(conn)
        if self._process is not process[0]:
            await self.reset_without_pause()
        self._end_use(conn, txn, cursor)
        await self._leave()

    def _spawn(self, coroutine: Any, context: Context | None = None) -> asyncio.Task[Any]:
        task = asyncio.get_running_loop().create_task(coroutine, context=context)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _leave(self) -> None:
        """After each call and its drain: connects, closes and publishes."""
        while self._to_connect:
            work = self._to_connect.popleft()
            self._spawn(self._establish(work), work.context)
        if self._to_publish or self._publishing.locked():
            await self._publish_all()

    async def _publish_all(self) -> None:
        """Publishes what there is in its order, and returns after all of it was published, by whichever task."""
        task = asyncio.current_task()
        if self._publisher is task:
            return
        async with self._publishing:
            self._publisher = task
            try:
                while self._to_publish:
                    publish, arguments, waiter = self._to_publish.popleft()
                    if publish is None:
                        # Its end is not awaited by halves if the task is cancelled.
                        await asyncio.shield(self._spawn(arguments[0].close_conn(None)))
                    else:
                        self._publish(publish, arguments, waiter)
            finally:
                self._publisher = None

    async def _establish(self, work: Establishment) -> None:
        token = _number.set(work.output.number)
        problem = None
        try:
            conn = await self.connect(handler=work.recorder)  # type: ignore[arg-type]
        except BaseException as error:
            problem = error
            self._not_established(work, error)
        else:
            self._established(work, conn)
        finally:
            _number.reset(token)
        await self._leave()
        if isinstance(problem, asyncio.CancelledError):
            # This task is to end.
            raise problem


_PymongosPool = pymongo_pool.Pool
