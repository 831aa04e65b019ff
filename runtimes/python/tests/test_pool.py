"""`cmap.Pool` in virtual time: the sockets are numbers, and nothing is connected."""

from __future__ import annotations

import ctypes.util
import os
import subprocess
import sys
import unittest
from typing import Any

import cmap
from cmap import Condition, ErrorCode, Failed, Fault, Found, Kind, Output, Phase, TimeoutReason

SECOND = 1_000_000_000


class Driver:
    """Establishes every connection at once, and keeps what the pool says."""

    def __init__(self, **options: Any) -> None:
        self.now = 0
        self.outputs: list[Output] = []
        self.pool = cmap.Pool("db.example:27017", options, now=0)
        self.pool.ready(0)
        self.drain()

    def drain(self) -> None:
        while output := self.pool.poll_output():
            self.outputs.append(output)
            if output.kind == Kind.CONNECT:
                self.pool.established(self.now, output.connection, 100 + output.number)

    def check_out(self, deadline: int = cmap.NEVER) -> Output:
        """Its delivery or its failure, or a NOTHING while it waits."""
        started = self.pool.check_out(self.now, deadline)
        self.drain()
        return self.answer_of(started)

    def answer_of(self, started: Output) -> Output:
        answers = (output for output in self.outputs if output.kind in (Kind.DELIVER, Kind.FAIL))
        return next((output for output in answers if output.check_out == started.check_out), started)

    def kinds(self) -> list[int]:
        return [output.kind for output in self.outputs]


class TestPool(unittest.TestCase):
    def test_a_check_out_has_a_connection_established_and_gets_it(self) -> None:
        driver = Driver()

        delivered = driver.check_out()

        self.assertEqual((delivered.kind, delivered.number, delivered.socket), (Kind.DELIVER, 1, 101))
        self.assertIn(Kind.EVENT_CONNECTION_READY, driver.kinds())

    def test_a_connection_that_comes_back_serves_the_next_check_out_at_once(self) -> None:
        driver = Driver()
        driver.pool.observe(False)
        delivered = driver.check_out()
        self.assertIsNone(driver.pool.check_in(1, delivered))
        driver.drain()

        again = driver.pool.check_out(2)

        self.assertEqual((again.kind, again.socket), (Kind.DELIVER, 101))
        self.assertNotEqual(again.check_out, delivered.check_out)

    def test_a_connection_that_comes_back_is_handed_to_who_waits(self) -> None:
        driver = Driver(maxPoolSize=1)
        first = driver.check_out()
        second = driver.check_out()
        self.assertEqual(second.kind, Kind.NOTHING)

        handed = driver.pool.check_in(1, first) or driver.answer_of(second)
        driver.drain()

        answer = handed if handed.kind else driver.answer_of(second)
        self.assertEqual((answer.kind, answer.socket), (Kind.DELIVER, 101))
        self.assertEqual(answer.check_out, second.check_out)

    def test_an_errored_connection_is_closed(self) -> None:
        driver = Driver()
        driver.pool.check_in(1, driver.check_out(), Condition.ERRORED)
        driver.drain()

        closed = next(output for output in driver.outputs if output.kind == Kind.CLOSE)
        self.assertEqual((closed.socket, closed.reason), (101, cmap.Closed.ERROR))

    def test_a_double_check_in_is_refused_and_named(self) -> None:
        driver = Driver()
        delivered = driver.check_out()
        driver.pool.check_in(1, delivered)
        driver.drain()

        with self.assertRaises(cmap.Error) as refused:
            driver.pool.check_in(2, delivered)

        self.assertEqual(refused.exception.code, ErrorCode.NOT_IN_USE)
        self.assertIn("NOT_IN_USE", str(refused.exception))

    def test_a_check_out_fails_when_its_time_is_up(self) -> None:
        driver = Driver(maxPoolSize=1, waitQueueTimeoutMS=1000)
        driver.check_out()
        waiting = driver.check_out()
        self.assertEqual(driver.pool.next_check_out_timeout(), SECOND)
        self.assertEqual(driver.pool.poll_timeout(), (SECOND, TimeoutReason.CHECK_OUT))

        driver.pool.handle_timeout(SECOND)
        driver.drain()

        failed = driver.answer_of(waiting)
        self.assertEqual((failed.kind, failed.reason, failed.nanos), (Kind.FAIL, Failed.WAIT_QUEUE_TIMEOUT, SECOND))
        self.assertIn("maxPoolSize", failed.text)

    def test_a_check_out_that_is_given_up_gets_no_answer(self) -> None:
        driver = Driver(maxPoolSize=1)
        driver.check_out()
        waiting = driver.check_out()

        self.assertEqual(driver.pool.cancel_check_out(1, waiting.check_out), Found.CANCELLED)
        driver.drain()

        self.assertEqual(driver.answer_of(waiting).kind, Kind.NOTHING)
        self.assertEqual(driver.pool.cancel_check_out(2, waiting.check_out), Found.FINISHED)

    def test_who_waits_for_a_connection_that_cannot_be_established_learns_which(self) -> None:
        pool = cmap.Pool("db.example:27017", now=0)
        pool.ready(0)
        started = pool.check_out(1)
        outputs = list(iter(pool.poll_output, None))
        connect = next(output for output in outputs if output.kind == Kind.CONNECT)
        self.assertEqual(connect.check_out, started.check_out)

        pool.establish_failed(2, connect.connection, Phase.CONNECT, Fault.NETWORK, "connection refused")

        outputs = list(iter(pool.poll_output, None))
        failed = next(output for output in outputs if output.kind == Kind.FAIL)
        self.assertEqual((failed.reason, failed.number), (Failed.ESTABLISH, connect.number))

    def test_a_clear_makes_connections_stale(self) -> None:
        driver = Driver()
        delivered = driver.check_out()
        self.assertFalse(driver.pool.is_stale(delivered.connection))

        driver.pool.clear(1, cause="the primary stepped down")
        driver.drain()

        self.assertTrue(driver.pool.is_stale(delivered.connection))
        self.assertEqual(driver.pool.statistics(1)["state"], "paused")

    def test_options_that_are_unknown_are_refused_and_named(self) -> None:
        with self.assertRaises(cmap.Error) as refused:
            cmap.Pool("db.example:27017", {"maxPoolsize": 5}, now=0)

        self.assertEqual(refused.exception.code, ErrorCode.OPTIONS)
        self.assertIn("maxPoolsize", refused.exception.text)

    def test_limits_can_be_changed(self) -> None:
        driver = Driver(maxPoolSize=1)
        driver.check_out()

        driver.pool.resize(1, {"maxPoolSize": 2})

        self.assertEqual(driver.check_out().kind, Kind.DELIVER)

    def test_holders_are_who_has_what(self) -> None:
        driver = Driver()
        delivered = driver.check_out()
        driver.pool.set_purpose(delivered, cmap.Purpose.CURSOR)

        (held,) = driver.pool.holders()["inUse"]

        self.assertEqual((held["connection"], held["purpose"]), (1, "cursor"))
        self.assertEqual(held["checkOut"], cmap.check_out_index(delivered.check_out))

    def test_calls_are_recorded(self) -> None:
        driver = Driver()
        with self.assertRaises(cmap.Error) as refused:
            driver.pool.recording()
        self.assertEqual(refused.exception.code, ErrorCode.NOT_RECORDING)
        driver.pool.start_recording()
        delivered = driver.check_out()
        driver.pool.note_holder(delivered.check_out, "a test")

        self.assertIn(b"a test", driver.pool.recording(trigger="on demand"))

    def test_a_call_before_outputs_were_taken_loses_nothing(self) -> None:
        pool = cmap.Pool("db.example:27017", now=0)
        pool.ready(0)
        first, second = pool.check_out(1), pool.check_out(1)

        connects = [output.check_out for output in iter(pool.poll_output, None) if output.kind == Kind.CONNECT]

        self.assertEqual(connects, [first.check_out, second.check_out])


class TestLibrary(unittest.TestCase):
    def test_a_library_that_is_missing_is_named_with_what_to_do(self) -> None:
        command = [sys.executable, "-c", "import cmap"]

        run = subprocess.run(command, env={"CMAP_LIBRARY": "/no/such/libcmap.so", "PYTHONPATH": ":".join(sys.path)}, stderr=subprocess.PIPE)

        self.assertIn(b"/no/such/libcmap.so", run.stderr)
        self.assertIn(b"cargo build --release -p cmap-c", run.stderr)

    def test_another_library_is_a_library_error(self) -> None:
        other = ctypes.util.find_library("m")
        if other is None:
            self.skipTest("there is no other library")
        command = [sys.executable, "-c", "import cmap"]

        run = subprocess.run(command, env={"CMAP_LIBRARY": other, "PYTHONPATH": ":".join(sys.path)}, stderr=subprocess.PIPE, text=True)

        self.assertIn("LibraryError", run.stderr)
        self.assertIn(f"{other}: another library", run.stderr)

    def test_the_names_of_the_library_are_tried_before_what_the_system_finds(self) -> None:
        from unittest import mock

        from cmap import library

        with mock.patch.dict(os.environ), mock.patch("ctypes.util.find_library", return_value="libcmap.so.4"):
            os.environ.pop("CMAP_LIBRARY", None)
            places = library._places()

        names = [place for place in places if not os.path.dirname(place)]
        self.assertEqual(names, [*library._NAMES, "libcmap.so.4"])

    def test_a_library_of_another_version_is_refused(self) -> None:
        from unittest import mock

        from cmap import library

        with mock.patch.object(library, "VERSION", "9.9.9"), self.assertRaisesRegex(cmap.LibraryError, "needs 9.9.9"):
            library._check(library.LIBRARY)


if __name__ == "__main__":
    unittest.main()
