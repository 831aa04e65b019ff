"""pymongo on cmap's pool, against the embedded test server."""

from __future__ import annotations

import asyncio
import collections
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import warnings
from collections.abc import Callable
from typing import Any, ClassVar
from unittest.mock import Mock, patch

import pymongo
from pymongo import monitoring
from pymongo.errors import AutoReconnect, WaitQueueTimeoutError
from pymongo.pool_shared import PoolState

import cmap.pymongo
from cmap.pymongo.shared import Adapter, Establishment
from cmap.pymongo.translation import millis
from tests.server import Server, program

cmap.pymongo.install()


class Listener(monitoring.ConnectionPoolListener):
    """Keeps the names of the events."""

    def __init__(self) -> None:
        self.events: list[str] = []

    def __getattribute__(self, name: str) -> Any:
        if name.startswith(("pool_", "connection_")):
            return lambda event: self.events.append(type(event).__name__.removesuffix("Event"))
        return super().__getattribute__(name)


def pool_of(client: Any) -> Any:
    """The pool of the client's only server."""
    (server,) = client._topology._servers.values()
    return server.pool


class TestWithServer(unittest.TestCase):
    server: ClassVar[Server]

    @classmethod
    def setUpClass(cls) -> None:
        cls.server = Server()

    @classmethod
    def tearDownClass(cls) -> None:
        cls.server.stop()

    def setUp(self) -> None:
        # pymongo warns of forks, which are wanted here.
        warnings.filterwarnings("ignore", "MongoClient opened before fork")

    def client(self, **options: Any) -> pymongo.MongoClient[Any]:
        client: pymongo.MongoClient[Any] = pymongo.MongoClient(self.server.uri, **options)
        self.addCleanup(client.close)
        return client

    def wait_until(self, is_so: Callable[[], bool]) -> None:
        end = time.monotonic() + 10
        while not is_so():
            self.assertLess(time.monotonic(), end)
            time.sleep(0.01)


class TestSynchronous(TestWithServer):
    def test_a_client_has_our_pool_and_its_monitor_has_pymongos(self) -> None:
        client = self.client()
        client.admin.command("ping")

        (server,) = client._topology._servers.values()
        self.assertIsInstance(server.pool, Adapter)
        self.assertNotIsInstance(server._monitor._pool, Adapter)

    def test_documents_come_back(self) -> None:
        documents = self.client().python.documents
        documents.drop()
        documents.insert_many([{"_id": number} for number in range(300)])

        self.assertEqual(sorted(found["_id"] for found in documents.find(batch_size=50)), list(range(300)))

    def test_events_come_in_the_specifications_order(self) -> None:
        listener = Listener()
        client = self.client(event_listeners=[listener])
        pool = pool_of(client)
        self.wait_until(lambda: listener.events[-1] == "PoolReady")
        with pool.checkout():
            pass
        pool.close()

        self.assertEqual(
            listener.events,
            [
                "PoolCreated",
                "PoolReady",
                "ConnectionCheckOutStarted",
                "ConnectionCreated",
                "ConnectionReady",
                "ConnectionCheckedOut",
                "ConnectionCheckedIn",
                "ConnectionClosed",
                "PoolClosed",
            ],
        )

    def test_threads_share_few_connections_in_turn(self) -> None:
        client = self.client(maxPoolSize=2)
        served = []

        def work(number: int) -> None:
            for _ in range(20):
                client.admin.command("ping")
            served.append(number)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(10)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        pool = pool_of(client)
        self.assertEqual(len(served), 10)
        self.assertLessEqual(len(pool.conns), 2)
        self.assertEqual((pool.active_sockets, pool.operation_count, pool.requests), (0, 0, 0))

    def test_a_check_out_times_out_as_pymongos_does(self) -> None:
        client = self.client(maxPoolSize=1, waitQueueTimeoutMS=50)
        client.admin.command("ping")
        pool = pool_of(client)

        with pool.checkout(), self.assertRaisesRegex(WaitQueueTimeoutError, "maxPoolSize: 1, timeout: 0.05"):
            client.admin.command("ping")

        self.assertEqual(pool.operation_count, 0)
        client.admin.command("ping")

    def test_the_time_of_an_operation_bounds_its_check_out(self) -> None:
        client = self.client(maxPoolSize=1)
        client.admin.command("ping")

        with pool_of(client).checkout(), pymongo.timeout(0.05), self.assertRaises(WaitQueueTimeoutError):
            client.admin.command("ping")

    def test_a_failure_to_connect_is_the_error_of_who_waits(self) -> None:
        client = self.client()
        client.admin.command("ping")
        pool = pool_of(client)
        pool.address = ("127.0.0.1", 1)

        with pool.checkout(), self.assertRaisesRegex(AutoReconnect, "refused"), pool.checkout():
            pass

    def test_a_failure_that_nobody_waits_for_is_told_to_monitoring(self) -> None:
        client = self.client(maxPoolSize=2)
        client.admin.command("ping")
        pool = pool_of(client)
        is_failing, may_fail = threading.Event(), threading.Event()

        def fail(*_: Any, **__: Any) -> None:
            is_failing.set()
            may_fail.wait(10)
            raise AutoReconnect("no more")

        pool.connect = fail
        first = pool.checkout()
        first.__enter__()
        thread = threading.Thread(target=client.admin.command, args=("ping",))
        thread.start()
        is_failing.wait(10)
        # The check-out that waits for the connection gets this one.
        first.__exit__(None, None, None)
        thread.join()
        generation = pool.gen.get_overall()
        with self.assertLogs("pymongo.client", "ERROR"):
            may_fail.set()
            self.wait_until(lambda: pool.gen.get_overall() > generation)
        del pool.connect

    def test_a_reset_closes_what_is_available_and_fails_who_waits(self) -> None:
        client = self.client(maxPoolSize=1)
        client.admin.command("ping")
        pool = pool_of(client)
        errors = []

        def wait() -> None:
            try:
                with pool.checkout():
                    pass
            except AutoReconnect as error:
                errors.append(str(error))

        with pool.checkout() as conn:
            thread = threading.Thread(target=wait)
            thread.start()
            self.wait_until(lambda: pool.operation_count == 2)
            pool.reset()
            thread.join()

        self.assertIn("connection pool paused", errors[0])
        self.assertTrue(conn.closed)

    def test_a_second_check_in_changes_nothing(self) -> None:
        client = self.client()
        client.admin.command("ping")
        pool = pool_of(client)
        with pool.checkout() as conn:
            pass

        pool.checkin(conn)

        self.assertEqual((pool.active_sockets, pool.operation_count, list(pool.conns)), (0, 0, [conn]))
        self.assertFalse(conn.closed)

    def test_a_connection_whose_peer_hung_up_is_not_used_again(self) -> None:
        client = self.client()
        client.admin.command("ping")
        pool = pool_of(client)
        pool._check_interval_seconds = 0
        with pool.checkout() as dead:
            dead.conn.close()

        with pool.checkout() as conn:
            self.assertIsNot(conn, dead)
            self.assertTrue(dead.closed)

    def test_min_pool_size_is_kept_in_the_background(self) -> None:
        client = self.client(minPoolSize=3)
        client.admin.command("ping")

        self.wait_until(lambda: len(pool_of(client).conns) == 3)

    def test_a_waiter_that_is_interrupted_leaves_nothing_behind(self) -> None:
        client = self.client(maxPoolSize=1)
        client.admin.command("ping")
        pool = pool_of(client)
        original = pool._handle_timeout

        def interrupt(waiter: Any) -> None:
            raise KeyboardInterrupt

        pool._handle_timeout = interrupt
        with pool.checkout(), pymongo.timeout(0.01), self.assertRaises(KeyboardInterrupt), pool.checkout():
            pass
        pool._handle_timeout = original

        self.assertEqual((pool.active_sockets, pool.operation_count), (0, 0))
        client.admin.command("ping")

    @unittest.skipUnless(hasattr(os, "fork"), "there is no fork")
    def test_a_child_that_was_forked_has_connections_of_its_own(self) -> None:
        client = self.client()
        client.admin.command("ping")
        pool = pool_of(client)
        (parents,) = pool.conns
        # Whatever the parent's threads are doing: here, one waits and one connects.
        in_use = pool.checkout()
        in_use.__enter__()

        child = os.fork()
        if child == 0:
            status = 1
            try:
                client.admin.command("ping")
                with pool.checkout() as conn:
                    status = int(conn is parents or conn.conn.fileno() == parents.conn.fileno())
            finally:
                os._exit(status)

        _, status = os.waitpid(child, 0)
        in_use.__exit__(None, None, None)
        self.assertEqual(os.waitstatus_to_exitcode(status), 0)
        client.admin.command("ping")
        self.assertIn(parents, pool.conns)

    @unittest.skipUnless(hasattr(os, "fork"), "there is no fork")
    def test_children_of_a_busy_pool_are_well(self) -> None:
        client = self.client(maxPoolSize=2)
        is_over = threading.Event()

        def work() -> None:
            while not is_over.is_set():
                client.admin.command("ping")

        threads = [threading.Thread(target=work) for _ in range(6)]
        for thread in threads:
            thread.start()
        children = []
        for _ in range(10):
            child = os.fork()
            if child == 0:
                status = 1
                try:
                    client.admin.command("ping")
                    with pool_of(client).checkout():
                        status = 0
                finally:
                    os._exit(status)
            children.append(child)
            time.sleep(0.01)
        statuses = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
        is_over.set()
        for thread in threads:
            thread.join()

        self.assertEqual(statuses, [0] * 10)

    def test_a_connection_of_the_parent_is_closed_when_a_child_checks_it_in(self) -> None:
        client = self.client()
        client.admin.command("ping")
        pool = pool_of(client)
        checked_out = pool.checkout()
        conn = checked_out.__enter__()
        pool._process = None

        checked_out.__exit__(None, None, None)

        self.assertTrue(conn.closed)
        self.assertEqual((pool.active_sockets, pool.operation_count, len(pool.conns)), (0, 0, 0))
        client.admin.command("ping")


class TestMaintenance(unittest.TestCase):
    def test_work_that_another_thread_takes_meanwhile_is_left_to_it(self) -> None:
        pool = Mock(state=PoolState.READY, _to_connect=collections.deque())

        class TakenWhenLookedAt:
            @property
            def recorder(self) -> None:
                pool._to_connect.popleft()

        pool._to_connect.extend([TakenWhenLookedAt(), TakenWhenLookedAt()])
        self.assertIsNone(Adapter._maintain(pool))

        pool._to_connect.append(left := Establishment(cmap.Output()))
        self.assertIs(Adapter._maintain(pool), left)
        self.assertFalse(pool._to_connect)


class TestTranslation(unittest.TestCase):
    def test_a_part_of_a_millisecond_is_not_taken_for_no_limit(self) -> None:
        self.assertEqual([millis(0.0005), millis(0.0011)], [1, 2])

    def test_whole_milliseconds_stay_as_they_are(self) -> None:
        # 1.001 * 1000 is less than 1001, and 0.29 * 1000 may be more than 290.
        self.assertEqual([millis(0), millis(0.29), millis(1.001), millis(None)], [0, 290, 1001, -1])


class TestLoadBalanced(unittest.TestCase):
    def test_a_cursor_keeps_its_connection(self) -> None:
        with Server("--load-balanced") as server, pymongo.MongoClient(server.uri, loadBalanced=True) as client:
            documents = client.python.documents
            documents.insert_many([{} for _ in range(10)])
            cursor = documents.find(batch_size=2)
            next(cursor)
            pool = pool_of(client)
            self.assertEqual(pool.active_sockets, 1)

            cursor.close()

            self.assertEqual(pool.active_sockets, 0)
            pool.reset(pool.conns[0].service_id)
            self.assertEqual(len(pool.conns), 0)


class TestAsynchronous(TestWithServer):
    def run_with_client(self, test: Callable[[Any], Any], **options: Any) -> None:
        async def run() -> None:
            async with pymongo.AsyncMongoClient(self.server.uri, **options) as client:
                await client.admin.command("ping")
                await asyncio.wait_for(test(client), 10)

        asyncio.run(run())

    def test_tasks_share_few_connections(self) -> None:
        async def test(client: Any) -> None:
            await asyncio.gather(*(client.admin.command("ping") for _ in range(50)))
            pool = pool_of(client)
            self.assertIsInstance(pool, Adapter)
            self.assertLessEqual(len(pool.conns), 2)
            self.assertEqual((pool.active_sockets, pool.operation_count), (0, 0))

        self.run_with_client(test, maxPoolSize=2)

    def test_a_task_that_is_cancelled_while_it_waits_leaves_nothing_behind(self) -> None:
        async def test(client: Any) -> None:
            pool = pool_of(client)
            async with pool.checkout():
                task = asyncio.create_task(client.admin.command("ping"))
                while pool.operation_count < 2:
                    await asyncio.sleep(0.001)
                task.cancel()
                with self.assertRaises(asyncio.CancelledError):
                    await task
                self.assertEqual(pool.operation_count, 1)
            self.assertEqual((pool.active_sockets, pool.operation_count), (0, 0))
            await client.admin.command("ping")

        self.run_with_client(test, maxPoolSize=1)

    def test_a_task_that_is_cancelled_when_it_is_served_gives_the_connection_back(self) -> None:
        async def test(client: Any) -> None:
            pool = pool_of(client)
            async with pool.checkout():
                task = asyncio.create_task(client.admin.command("ping"))
                while pool.operation_count < 2:
                    await asyncio.sleep(0.001)
            # The check-in has served the task, which has not run yet.
            task.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await task
            self.assertEqual((pool.active_sockets, pool.operation_count, len(pool.conns)), (0, 0, 1))

        self.run_with_client(test, maxPoolSize=1)

    def test_a_check_out_times_out(self) -> None:
        async def test(client: Any) -> None:
            async with pool_of(client).checkout():
                with self.assertRaises(WaitQueueTimeoutError):
                    await client.admin.command("ping")

        self.run_with_client(test, maxPoolSize=1, waitQueueTimeoutMS=50)


class TestIncident(TestWithServer):
    """What `cmap replay` explains of an application's recording: who has waited, for whom."""

    def setUp(self) -> None:
        super().setUp()
        cmap.pymongo.install(recording_bytes=1 << 20)
        self.addCleanup(cmap.pymongo.install)

    def explained(self, recording: bytes) -> list[dict[str, Any]]:
        """The failures in the file, by another process, which repeats all calls first."""
        with tempfile.NamedTemporaryFile(suffix=".cmaptrace") as file:
            file.write(recording)
            file.flush()
            command = [program(), "replay", file.name, "--explain", "failures", "--json"]
            return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)

    def test_a_check_out_that_timed_out_names_the_function_that_held_the_connection(self) -> None:
        client = self.client(maxPoolSize=1, waitQueueTimeoutMS=50, retryReads=False)
        documents = client.python.incidents
        documents.insert_many([{} for _ in range(10)])

        def nightly_export() -> None:
            with pool_of(client).checkout():
                with self.assertRaises(WaitQueueTimeoutError):
                    quick_lookup()

        def quick_lookup() -> None:
            documents.find_one()

        nightly_export()
        (recording,) = cmap.pymongo.recordings(client, "check-outs time out").values()

        (failure,) = self.explained(recording)
        self.assertEqual(failure["cause"], "maxPoolSize")
        self.assertIn("quick_lookup (test_pymongo.py:", failure["wait"]["holder"])
        self.assertIn("nightly_export (test_pymongo.py:", json.dumps(failure["wait"]["intervals"]))
        self.assertGreaterEqual(failure["nanoseconds"], 50_000_000)

    def test_asynchronous_tasks_are_named_too(self) -> None:
        async def hold_and_ask(client: Any) -> bytes:
            async with pool_of(client).checkout():
                with self.assertRaises(WaitQueueTimeoutError):
                    await client.admin.command("ping")
            (recording,) = cmap.pymongo.recordings(client, "check-outs time out").values()
            return recording

        async def run() -> bytes:
            async with pymongo.AsyncMongoClient(self.server.uri, maxPoolSize=1, waitQueueTimeoutMS=50) as client:
                await client.admin.command("ping")
                return await hold_and_ask(client)

        (failure,) = self.explained(asyncio.run(run()))
        self.assertEqual(failure["cause"], "maxPoolSize")
        self.assertIn("hold_and_ask (test_pymongo.py:", failure["wait"]["holder"])


class TestInstall(TestWithServer):
    def test_another_version_of_pymongo_is_refused(self) -> None:
        with patch.object(pymongo, "version_tuple", (4, 21, 0)), self.assertRaisesRegex(RuntimeError, "4.20"):
            cmap.pymongo.install()

    def test_an_older_pymongo_that_lacks_a_module_is_refused_by_install(self) -> None:
        lines = [
            "import sys, pymongo",
            "pymongo.version_tuple = (4, 10, 0)",
            "sys.modules['pymongo._telemetry'] = None",
            "import cmap.pymongo",
            "cmap.pymongo.install()",
        ]
        environment = os.environ | {"PYTHONPATH": ":".join(sys.path)}

        run = subprocess.run([sys.executable, "-c", "\n".join(lines)], env=environment, stderr=subprocess.PIPE, text=True)

        self.assertIn("RuntimeError: cmap.pymongo knows the pool of pymongo 4.20", run.stderr)

    def test_recordings_name_who_holds_connections(self) -> None:
        cmap.pymongo.install(recording_bytes=1 << 20)
        self.addCleanup(cmap.pymongo.install)
        client = self.client()
        client.admin.command("ping")

        (recording,) = cmap.pymongo.recordings(client, "a test").values()

        self.assertIn(b"TestInstall.test_recordings_name_who_holds_connections (test_pymongo.py:", recording)

    def test_a_recording_is_taken_under_the_lock_of_the_pool(self) -> None:
        cmap.pymongo.install(recording_bytes=1 << 20)
        self.addCleanup(cmap.pymongo.install)
        client = self.client()
        client.admin.command("ping")
        pool = pool_of(client)
        was_locked = []

        with patch.object(pool._machine, "recording", lambda *_: was_locked.append(pool.lock.locked())):
            cmap.pymongo.recordings(client)

        self.assertEqual(was_locked, [True])
        self.assertFalse(pool.lock.locked())

    def test_a_server_that_is_found_meanwhile_does_not_end_recordings(self) -> None:
        servers: dict[str, Any] = {}

        class Server:
            @property
            def pool(self) -> None:
                servers["found meanwhile"] = Mock()

        servers["first"] = Server()
        client = Mock(_topology=Mock(_servers=servers))

        self.assertEqual(cmap.pymongo.recordings(client), {})


if __name__ == "__main__":
    unittest.main()
