"""What the checks have in common: connection strings, fail points, what a driver reports, and what is expected."""

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote, urlencode

from dns import resolver
from pymongo import MongoClient, monitoring
from pymongo.errors import PyMongoError


class Skip(Exception):
    """The driver does not have what the check is about."""


class Servers:
    """The servers of the input, by name."""

    def __init__(self, servers: dict[str, dict[str, Any]]):
        self._servers = servers

    @contextmanager
    def client(
        self, server: str, user: str = "", password: str = "", listeners: Iterable[Any] = (), **options: Any
    ) -> Iterator[MongoClient]:
        """A client of the server, by a connection string with these options."""
        login = quote(user, safe="") + (":" + quote(password, safe="") if password else "") + "@" if user else ""
        options = {"serverSelectionTimeoutMS": 5000, **self._servers[server].get("options", {}), **options}
        uri = f"mongodb://{login}{self._servers[server]['address']}/?{urlencode(options)}"
        with MongoClient(uri, event_listeners=list(listeners)) as client:
            yield client

    @contextmanager
    def client_by_dns(self, server: str, name: str) -> Iterator[MongoClient]:
        """A client of the server that this name leads to. Meanwhile all names are looked up at the server's DNS server."""
        host, port = self._servers[server]["dns"].split(":")
        asked = resolver.Resolver(configure=False)
        asked.nameservers, asked.port = [host], int(port)
        before, resolver.default_resolver = resolver.default_resolver, asked
        resolver.override_system_resolver(asked)
        try:
            with MongoClient(f"mongodb+srv://{name}/?tls=false&serverSelectionTimeoutMS=10000") as client:
                yield client
        finally:
            resolver.restore_system_resolver()
            resolver.default_resolver = before

    def tls(self, server: str = "tls", certificate: str | None = None, ca: str = "ca.pem") -> dict[str, str]:
        """The options of a client that trusts `ca` and shows `certificate`."""
        folder = self._servers[server]["certificates"]
        options = {"tls": "true", "tlsCAFile": f"{folder}/{ca}"}
        return {**options, "tlsCertificateKeyFile": f"{folder}/{certificate}"} if certificate else options


@contextmanager
def fail_point(client: MongoClient, mode: Any, **data: Any) -> Iterator[None]:
    """The server has this fail point within the block."""
    client.admin.command("configureFailPoint", "failCommand", mode=mode, data=data)
    try:
        yield
    finally:
        client.admin.command("configureFailPoint", "failCommand", mode="off")


class Commands(monitoring.CommandListener):
    """The commands that a client sent, and the answers."""

    def __init__(self) -> None:
        self.sent: list[monitoring.CommandStartedEvent] = []
        self.answered: list[monitoring.CommandSucceededEvent] = []

    def of(self, name: str) -> list[monitoring.CommandStartedEvent]:
        return [event for event in self.sent if event.command_name == name]

    def started(self, event: monitoring.CommandStartedEvent) -> None:
        self.sent.append(event)

    def succeeded(self, event: monitoring.CommandSucceededEvent) -> None:
        self.answered.append(event)

    def failed(self, event: monitoring.CommandFailedEvent) -> None: ...


class Heartbeats(monitoring.ServerHeartbeatListener, monitoring.ServerListener):
    """What a client's monitor finds out."""

    def __init__(self) -> None:
        self.awaited = threading.Semaphore(0)
        self._kinds: list[str] = []
        self._changed = threading.Condition()

    def became(self, kinds: list[str], timeout: float) -> bool:
        """Whether the server was of all these kinds, in this order, in time."""
        with self._changed:
            return self._changed.wait_for(lambda: self._kinds == kinds, timeout)

    def succeeded(self, event: monitoring.ServerHeartbeatSucceededEvent) -> None:
        if event.awaited:
            self.awaited.release()

    def description_changed(self, event: monitoring.ServerDescriptionChangedEvent) -> None:
        with self._changed:
            if self._kinds[-1:] != [event.new_description.server_type_name]:
                self._kinds.append(event.new_description.server_type_name)
            self._changed.notify_all()

    def started(self, event: monitoring.ServerHeartbeatStartedEvent) -> None: ...

    def failed(self, event: monitoring.ServerHeartbeatFailedEvent) -> None: ...

    def opened(self, event: monitoring.ServerOpeningEvent) -> None: ...

    def closed(self, event: monitoring.ServerClosedEvent) -> None: ...


class PoolEvents(monitoring.ConnectionPoolListener):
    """The names of what happened in a pool, in order."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def _note(name: str) -> Callable[["PoolEvents", Any], None]:
        return lambda self, _event: self.names.append(name)

    pool_created, pool_ready = _note("poolCreated"), _note("poolReady")
    pool_cleared, pool_closed = _note("poolCleared"), _note("poolClosed")
    connection_created, connection_ready = _note("created"), _note("ready")
    connection_closed = _note("closed")
    connection_check_out_started = _note("checkOutStarted")
    connection_check_out_failed = _note("checkOutFailed")
    connection_checked_out, connection_checked_in = _note("checkedOut"), _note("checkedIn")


def expect(actual: Any, expected: Any, what: str) -> None:
    if actual != expected:
        raise AssertionError(f"{what}: {actual!r} instead of {expected!r}")


@contextmanager
def expect_error(kind: type[PyMongoError], code: int | None = None, text: str = "") -> Iterator[None]:
    """The block fails so; `text` is in the message, in whatever case."""
    try:
        yield
    except kind as error:
        if code is not None:
            expect(getattr(error, "code", None), code, "error code")
        if text.lower() not in str(error).lower():
            raise AssertionError(f"the error does not say {text!r}: {error}") from error
    else:
        raise AssertionError(f"no {kind.__name__} came")
