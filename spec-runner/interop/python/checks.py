"""The checks, in the order of the README's list. Each connects anew, and fails by raising."""

import threading
import time
from collections.abc import Callable
from typing import Any

from bson import encode
from pymongo import MongoClient, ReturnDocument, WriteConcern
from pymongo.errors import (
    AutoReconnect,
    ConfigurationError,
    CursorNotFound,
    DuplicateKeyError,
    OperationFailure,
    PyMongoError,
    ServerSelectionTimeoutError,
    WriteError,
)

from connect import Commands, Heartbeats, PoolEvents, Servers, expect, expect_error, fail_point

USER, PASSWORD = "user", "secret"
SUBJECT = "CN=client,OU=cmap,O=cmap"
# The longest document that a server takes.
LARGEST = 16 * 1024 * 1024
# A client that is expected not to connect does not try for long.
SOON = {"serverSelectionTimeoutMS": 2000}

ALL: dict[str, Callable[[Servers], None]] = {}


def check(function: Callable[[Servers], None]) -> Callable[[Servers], None]:
    ALL[function.__name__.replace("_", "-")] = function
    return function


def expect_login(client: MongoClient, user: str, database: str) -> None:
    """The server knows who it is, and lets in whom it knows."""
    status = client.admin.command("connectionStatus")
    expect(status["authInfo"]["authenticatedUsers"], [{"user": user, "db": database}], "authenticated users")
    if database != "users":
        client.test.logins.insert_one({"user": user})


# Authentication.


@check
def scram_sha_1(servers: Servers) -> None:
    with servers.client("auth", USER, PASSWORD, authMechanism="SCRAM-SHA-1") as client:
        expect_login(client, USER, "admin")


@check
def scram_sha_256(servers: Servers) -> None:
    with servers.client("auth", USER, PASSWORD, authMechanism="SCRAM-SHA-256") as client:
        expect_login(client, USER, "admin")


@check
def scram_sha_256_saslprep(servers: Servers) -> None:
    # The server was told I, soft hyphen, X; SASLprep makes IX of it, and of the Roman numeral nine.
    for password in ("IX", "\u2168"):
        with servers.client("auth", "sasl", password, authMechanism="SCRAM-SHA-256") as client:
            expect_login(client, "sasl", "admin")


@check
def scram_default(servers: Servers) -> None:
    with servers.client("auth", USER, PASSWORD) as client:
        expect_login(client, USER, "admin")


@check
def plain(servers: Servers) -> None:
    options = servers.tls()
    with servers.client("tls", USER, PASSWORD, authMechanism="PLAIN", authSource="$external", **options) as client:
        expect_login(client, USER, "$external")


@check
def x509(servers: Servers) -> None:
    with servers.client("tls", authMechanism="MONGODB-X509", **servers.tls(certificate="client.pem")) as client:
        expect_login(client, SUBJECT, "$external")


@check
def encrypted_client_key(servers: Servers) -> None:
    options = {"authMechanism": "MONGODB-X509", **servers.tls(certificate="client-encrypted.pem")}
    with servers.client("tls", tlsCertificateKeyFilePassword="secret", **options) as client:
        expect_login(client, SUBJECT, "$external")
    with expect_error(ConfigurationError):
        with servers.client("tls", tlsCertificateKeyFilePassword="wrong", **options):
            pass


@check
def wrong_password(servers: Servers) -> None:
    for mechanism in ("SCRAM-SHA-1", "SCRAM-SHA-256"):
        with servers.client("auth", USER, "wrong", authMechanism=mechanism) as client:
            with expect_error(OperationFailure, code=18):
                client.admin.command("ping")
    with servers.client("auth", "nobody", PASSWORD) as client, expect_error(OperationFailure, code=18):
        client.admin.command("ping")
    with servers.client("auth") as client, expect_error(OperationFailure, code=13):
        client.test.logins.insert_one({})


@check
def unknown_x509_user(servers: Servers) -> None:
    options = servers.tls(certificate="stranger.pem")
    with servers.client("tls", authMechanism="MONGODB-X509", **options) as client:
        with expect_error(OperationFailure, text="auth"):
            client.admin.command("ping")


# TLS.


@check
def wrong_certificate(servers: Servers) -> None:
    with servers.client("tls", **servers.tls(certificate="client.pem")) as client:
        client.admin.command("ping")
    with servers.client("tls", **servers.tls(ca="other-ca.pem"), **SOON) as client:
        with expect_error(ServerSelectionTimeoutError, text="certificate verify failed"):
            client.admin.command("ping")
    options = {"authMechanism": "MONGODB-X509", **servers.tls(certificate="other-client.pem"), **SOON}
    with servers.client("tls", **options) as client, expect_error(ServerSelectionTimeoutError):
        client.admin.command("ping")


@check
def wrong_host_name(servers: Servers) -> None:
    options = servers.tls("wrong-host")
    with servers.client("wrong-host", **options, **SOON) as client:
        with expect_error(ServerSelectionTimeoutError, text="certificate is not valid for '127.0.0.1'"):
            client.admin.command("ping")
    with servers.client("wrong-host", **options, tlsAllowInvalidHostnames="true") as client:
        client.admin.command("ping")


# Compression.


def expect_compression(servers: Servers, compressor: str) -> None:
    def count(client: MongoClient) -> dict[str, tuple[int, int]]:
        """For each compressor, how many bytes came and left compressed."""
        network = client.admin.command("serverStatus")["network"]["compression"]
        return {name: (of["decompressor"]["bytesIn"], of["compressor"]["bytesOut"]) for name, of in network.items()}

    with servers.client("open") as observer, servers.client("open", compressors=compressor) as client:
        before = count(observer)
        collection = client.test["compressed-" + compressor]
        collection.drop()
        collection.insert_one({"_id": 1, "text": "a" * 100_000})
        expect(collection.find_one(), {"_id": 1, "text": "a" * 100_000}, "document")
        after = count(observer)
    expect(compressor in after, True, f"the server counts for {compressor}")
    for name, (came, left) in after.items():
        grew = came > before[name][0] and left > before[name][1]
        expect(grew, name == compressor, f"use of {name}")


@check
def compressor_snappy(servers: Servers) -> None:
    expect_compression(servers, "snappy")


@check
def compressor_zlib(servers: Servers) -> None:
    expect_compression(servers, "zlib")


@check
def compressor_zstd(servers: Servers) -> None:
    expect_compression(servers, "zstd")


# Commands.


@check
def ping(servers: Servers) -> None:
    with servers.client("open") as client:
        expect(client.admin.command("ping")["ok"], 1, "ok")


@check
def crud(servers: Servers) -> None:
    with servers.client("open") as client:
        client.drop_database("crud")
        things = client.crud.things
        expect(things.insert_one({"_id": 1, "n": 1}).inserted_id, 1, "inserted id")
        expect(things.insert_many([{"_id": 2, "n": 2}, {"_id": 3, "n": 2}]).inserted_ids, [2, 3], "inserted ids")
        with expect_error(DuplicateKeyError, code=11000):
            things.insert_one({"_id": 1})
        expect(list(things.find({"n": 2}).sort("_id", -1)), [{"_id": 3, "n": 2}, {"_id": 2, "n": 2}], "found")
        updated = things.update_many({"n": 2}, {"$set": {"n": 5}})
        expect((updated.matched_count, updated.modified_count), (2, 2), "matched and modified")
        expect(things.update_one({"_id": 9}, {"$set": {"n": 9}}, upsert=True).upserted_id, 9, "upserted id")
        changed = things.find_one_and_update({"_id": 1}, {"$inc": {"n": 10}}, return_document=ReturnDocument.AFTER)
        expect(changed, {"_id": 1, "n": 11}, "found and modified")
        expect(list(things.aggregate([{"$match": {"n": 5}}, {"$limit": 1}])), [{"_id": 2, "n": 5}], "aggregated")
        expect(sorted(things.distinct("n")), [5, 9, 11], "distinct")
        expect(things.estimated_document_count(), 4, "count")
        expect(things.delete_one({"n": 5}).deleted_count, 1, "deleted")
        expect(client.crud.list_collection_names(), ["things"], "collections")
        expect("crud" in client.list_database_names(), True, "database is listed")
        things.drop()
        expect(things.find_one(), None, "document of a dropped collection")


@check
def create_user(servers: Servers) -> None:
    with servers.client("auth", USER, PASSWORD) as client:
        client.users.command("dropAllUsersFromDatabase")
        roles = [{"role": "readWrite", "db": "users"}]
        client.users.command("createUser", "new", pwd="p\u00e4ss", roles=roles, mechanisms=["SCRAM-SHA-256"])
    with servers.client("auth", "new", "p\u00e4ss", authSource="users") as client:
        expect_login(client, "new", "users")


@check
def unknown_command(servers: Servers) -> None:
    with servers.client("open") as client:
        with expect_error(OperationFailure, code=59, text="no such command: 'noSuchCommand'"):
            client.admin.command("noSuchCommand")


@check
def unacknowledged_write(servers: Servers) -> None:
    # On a single connection the read follows the write.
    with servers.client("open", maxPoolSize=1) as client:
        collection = client.test.unacknowledged
        collection.drop()
        result = collection.with_options(write_concern=WriteConcern(w=0)).insert_one({"_id": 1})
        expect(result.acknowledged, False, "acknowledged")
        expect(collection.find_one(), {"_id": 1}, "document")


def document_of(length: int) -> dict[str, Any]:
    """A document of so many bytes."""
    rest = length - len(encode({"_id": 1, "data": b""}))
    document = {"_id": 1, "data": bytes(n % 251 for n in range(rest))}
    expect(len(encode(document)), length, "length")
    return document


@check
def large_document(servers: Servers) -> None:
    largest = document_of(LARGEST)
    with servers.client("open") as client:
        collection = client.test.large
        collection.drop()
        collection.insert_one(largest)
        expect(collection.find_one() == largest, True, "the same document came back")
        collection.drop()


@check
def too_large_document(servers: Servers) -> None:
    with servers.client("open") as client:
        with expect_error(WriteError, code=10334):
            client.test.large.insert_one(document_of(LARGEST + 1))
        client.admin.command("ping")


@check
def large_batch(servers: Servers) -> None:
    commands = Commands()
    with servers.client("open", listeners=[commands]) as client:
        collection = client.test.batch
        collection.drop()
        collection.insert_many({"_id": n} for n in range(100_000))
        expect(len(commands.of("insert")), 1, "insert commands")
        ids = [document["_id"] for document in collection.find()]
        expect(ids == list(range(100_000)), True, "all came back in order")
        collection.drop()


# Cursors.


@check
def cursor_get_mores(servers: Servers) -> None:
    # A batch filled exactly leaves the cursor open (SRV-5).
    for documents, batch_size, get_mores in ((3, 1, 3), (5, 2, 2), (4, 2, 2), (3, 5, 0)):
        commands = Commands()
        with servers.client("open", listeners=[commands]) as client:
            collection = client.test.cursors
            collection.drop()
            collection.insert_many({"_id": n} for n in range(documents))
            ids = [document["_id"] for document in collection.find(batch_size=batch_size)]
        expect(ids, list(range(documents)), "documents")
        expect(len(commands.of("getMore")), get_mores, f"getMores for {documents} documents by {batch_size}")


@check
def kill_cursors(servers: Servers) -> None:
    commands = Commands()
    with servers.client("open", listeners=[commands]) as client:
        collection = client.test.killed
        collection.drop()
        collection.insert_many({"_id": n} for n in range(10))
        cursor = collection.find(batch_size=2)
        expect([next(cursor)["_id"] for _ in range(3)], [0, 1, 2], "the first documents, in two batches")
        cursor_id = cursor.cursor_id
        cursor.close()
        expect([event.command["cursors"] for event in commands.of("killCursors")], [[cursor_id]], "killed cursors")
        with expect_error(CursorNotFound, code=43):
            client.test.command("getMore", cursor_id, collection="killed")


# Fail points.


@check
def fail_point_error_code(servers: Servers) -> None:
    with servers.client("open") as client:
        with fail_point(client, {"times": 1}, failCommands=["ping"], errorCode=2):
            with expect_error(OperationFailure, code=2, text="failpoint"):
                client.admin.command("ping")
            client.admin.command("ping")


@check
def fail_point_close_connection(servers: Servers) -> None:
    with servers.client("open") as client:
        with fail_point(client, {"times": 1}, failCommands=["ping"], closeConnection=True):
            with expect_error(AutoReconnect):
                client.admin.command("ping")
            client.admin.command("ping")


@check
def fail_point_block_connection(servers: Servers) -> None:
    durations: dict[str, float] = {}
    with servers.client("open") as client:

        def measure(command: str) -> None:
            start = time.monotonic()
            client.admin.command(command)
            durations[command] = time.monotonic() - start

        with fail_point(client, {"times": 1}, failCommands=["ping"], blockConnection=True, blockTimeMS=500):
            threads = [threading.Thread(target=measure, args=[command]) for command in ("ping", "buildInfo")]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
    expect(durations["ping"] >= 0.5, True, f"ping took {durations['ping']} s, which is half a second")
    expect(durations["buildInfo"] < durations["ping"], True, "another connection was not blocked")


@check
def fail_point_times(servers: Servers) -> None:
    with servers.client("open") as client:

        def outcomes(count: int) -> str:
            def outcome() -> str:
                try:
                    client.admin.command("ping")
                    return "+"
                except OperationFailure as error:
                    expect(error.code, 2, "error code")
                    return "-"

            return "".join(outcome() for _ in range(count))

        for mode, expected in (({"times": 2}, "--+"), ({"skip": 1}, "+--"), ("alwaysOn", "---")):
            with fail_point(client, mode, failCommands=["ping"], errorCode=2):
                expect(outcomes(3), expected, f"outcomes in the mode {mode}")
            expect(outcomes(1), "+", "outcome when it is off")


@check
def fail_point_app_name(servers: Servers) -> None:
    with servers.client("open", appName="victim") as victim, servers.client("open", appName="other") as other:
        with fail_point(other, "alwaysOn", failCommands=["ping"], errorCode=2, appName="victim"):
            other.admin.command("ping")
            with expect_error(OperationFailure, code=2):
                victim.admin.command("ping")


@check
def error_labels(servers: Servers) -> None:
    with servers.client("open") as client:
        with fail_point(client, {"times": 1}, failCommands=["ping"], errorCode=2, errorLabels=["Mine", "Yours"]):
            expect_labels(lambda: client.admin.command("ping"), ["Mine", "Yours"])
    # A replica set labels what a driver may retry (SRV-8): a command with a number. This driver retries once.
    with servers.client("replica-set", replicaSet="rs0") as client:
        with fail_point(client, {"times": 2}, failCommands=["insert"], errorCode=262):
            expect_labels(lambda: client.test.labels.insert_one({}), ["RetryableWriteError"])


def expect_labels(action: Callable[[], Any], labels: list[str]) -> None:
    try:
        action()
    except PyMongoError as error:
        expect([label for label in labels if error.has_error_label(label)], labels, "labels")
    else:
        raise AssertionError("no error came")


# Topologies.


@check
def streaming_hello(servers: Servers) -> None:
    # The server answers at most so late without a change.
    heartbeats = Heartbeats()
    with servers.client("replica-set", replicaSet="rs0", heartbeatFrequencyMS=500, listeners=[heartbeats]) as client:
        client.admin.command("ping")
        for _ in range(3):
            expect(heartbeats.awaited.acquire(timeout=5), True, "a reply that was awaited")

    # A change is told at once, long before the next heartbeat.
    heartbeats = Heartbeats()
    options = {"replicaSet": "rs0", "heartbeatFrequencyMS": 60_000, "serverSelectionTimeoutMS": 10_000}
    with (
        servers.client("replica-set", listeners=[heartbeats], **options) as client,
        servers.client("replica-set", directConnection="true") as operator,
    ):
        client.admin.command("ping")
        operator.admin.command("replSetStepDown", 1, force=True)
        expect(heartbeats.became(["RSPrimary", "RSSecondary"], 3), True, "the step-down is known at once")
        expect(heartbeats.became(["RSPrimary", "RSSecondary", "RSPrimary"], 10), True, "and so is the end of it")


@check
def replica_set(servers: Servers) -> None:
    commands = Commands()
    with servers.client("replica-set", replicaSet="rs0", listeners=[commands]) as client:
        client.admin.command("ping")
        topology = client.topology_description
        expect((topology.topology_type_name, topology.replica_set_name), ("ReplicaSetWithPrimary", "rs0"), "topology")
        collection = client.test.retried
        collection.drop()
        collection.insert_one({"_id": 1, "n": 0})
        concern_error = {"code": 262, "codeName": "ExceededTimeLimit", "errmsg": "too late"}
        # The first is not executed before it fails. The second is: the server must know it again by its number.
        for n, failure in enumerate(({"errorCode": 262}, {"writeConcernError": concern_error}), start=1):
            commands.sent.clear()
            with fail_point(client, {"times": 1}, failCommands=["update"], errorLabels=["RetryableWriteError"], **failure):
                collection.update_one({"_id": 1}, {"$inc": {"n": 1}})
            expect(collection.find_one()["n"], n, f"executions after {failure}")
            numbers = [event.command["txnNumber"] for event in commands.of("update")]
            expect((len(numbers), len(set(numbers))), (2, 1), "attempts, and numbers of them")


@check
def load_balanced(servers: Servers) -> None:
    commands = Commands()
    with servers.client("load-balanced", loadBalanced="true", listeners=[commands]) as client:
        client.test.balanced.drop()
        client.test.balanced.insert_many({"_id": n} for n in range(5))
        expect(len(list(client.test.balanced.find(batch_size=2))), 5, "documents")
    services = {event.service_id for event in commands.answered}
    expect((len(services), None in services), (1, False), "services, and whether one was missing")
    with servers.client("replica-set", loadBalanced="true", **SOON) as client, expect_error(PyMongoError, text="load balanc"):
        client.admin.command("ping")


@check
def threads_32(servers: Servers) -> None:
    barrier = threading.Barrier(32)
    problems: list[str] = []
    with servers.client("open", maxPoolSize=32) as client:
        collection = client.test.threads
        collection.drop()

        def work(thread: int) -> None:
            try:
                barrier.wait(10)
                for n in range(20):
                    document = {"_id": thread * 100 + n, "text": f"{thread}-{n}"}
                    collection.insert_one(document)
                    expect(collection.find_one({"_id": document["_id"]}), document, "document")
            except Exception as error:
                problems.append(repr(error))

        threads = [threading.Thread(target=work, args=[thread]) for thread in range(32)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        expect(problems, [], "problems")
        expect(collection.estimated_document_count(), 640, "count")


@check
def pool_events(servers: Servers) -> None:
    events = PoolEvents()
    with servers.client("open", listeners=[events]) as client:
        client.admin.command("ping")
        expected = ["poolCreated", "poolReady", "checkOutStarted", "created", "ready", "checkedOut", "checkedIn"]
        expect(events.names, expected, "events")
