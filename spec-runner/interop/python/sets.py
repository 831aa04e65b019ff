"""The checks of a replica set with several members. Each fails by raising."""

from collections.abc import Iterator
from contextlib import contextmanager

from pymongo import DeleteOne, InsertOne, MongoClient, UpdateOne, WriteConcern
from pymongo.collection import Collection
from pymongo.read_preferences import Secondary

from connect import Servers, expect

# The tags of the members.
NUMBERS = ("0", "1", "2")


# The name that leads to the members, at their DNS server.
SRV_NAME = "members.cmap.test"


@contextmanager
def client_of_set(servers: Servers) -> Iterator[MongoClient]:
    """A client that is told of one member, and has to find the others."""
    with servers.client("members", replicaSet="rs0", serverSelectionTimeoutMS=10_000) as client:
        yield client


def fresh(client: MongoClient, name: str) -> Collection:
    """An empty collection, whose documents all members have."""
    client.test.drop_collection(name)
    return client.test.get_collection(name, write_concern=WriteConcern(3))


def set_secondary_reads(servers: Servers) -> None:
    with client_of_set(servers) as client:
        fresh(client, "secondary_reads").insert_one({"_id": 1})
        primary = client.admin.command("hello")["tags"]["number"]
        for number in NUMBERS:
            if number != primary:
                preference = Secondary(tag_sets=[{"number": number}])
                hello = client.admin.command("hello", read_preference=preference)
                expect((hello["secondary"], hello["tags"]), (True, {"number": number}), "the member with the tag")
                collection = client.test.get_collection("secondary_reads", read_preference=preference)
                expect(collection.find_one(), {"_id": 1}, "document of the secondary")


def set_step_down(servers: Servers) -> None:
    with client_of_set(servers) as client:
        collection = fresh(client, "step_down")
        collection.insert_one({"_id": 1})
        before = client.admin.command("hello")["me"]
        client.admin.command("replSetStepDown", 2)
        # The driver finds the next primary, and sends again what the old one refuses.
        collection.insert_one({"_id": 2})
        expect(client.admin.command("hello")["me"] != before, True, "another member is the primary")
        expect([document["_id"] for document in collection.find()], [1, 2], "documents")


def set_kill(servers: Servers) -> None:
    with client_of_set(servers) as client:
        fresh(client, "kill").insert_one({"_id": 1})
        before = client.admin.command("hello")["me"]
        client.admin.command("testDeployment", "kill", member=before)
        client.test.get_collection("kill", write_concern=WriteConcern("majority")).insert_one({"_id": 2})
        expect(client.admin.command("hello")["me"] != before, True, "another member is the primary")

        client.admin.command("testDeployment", "restart", member=before)
        # All members have it once the one that was killed has caught up.
        collection = client.test.get_collection("kill", write_concern=WriteConcern(3))
        collection.insert_one({"_id": 3})
        expect([document["_id"] for document in collection.find()], [1, 2, 3], "documents")


def set_change_stream(servers: Servers) -> None:
    with client_of_set(servers) as client:
        collection = fresh(client, "changes")
        with collection.watch() as stream:
            collection.insert_one({"_id": 1})
            expect(stream.next()["documentKey"], {"_id": 1}, "change")
            # The stream goes on over another connection.
            data = {"failCommands": ["getMore"], "closeConnection": True}
            client.admin.command("configureFailPoint", "failCommand", mode={"times": 1}, data=data)
            writes = [InsertOne({"_id": 2}), UpdateOne({"_id": 1}, {"$set": {"x": 1}}), DeleteOne({"_id": 1})]
            collection.bulk_write(writes)
            kinds = [stream.next()["operationType"] for _ in writes]
            expect(kinds, ["insert", "update", "delete"], "changes of the bulk write")


def set_srv(servers: Servers) -> None:
    with servers.client_by_dns("members", SRV_NAME) as client:
        collection = fresh(client, "srv")
        collection.insert_one({"_id": 1})
        expect([document["_id"] for document in collection.find()], [1], "documents")
        # The TXT record names the set, whose members name themselves.
        expect((client.topology_description.replica_set_name, len(client.nodes)), ("rs0", 3), "set and members")


CHECKS = (set_secondary_reads, set_step_down, set_kill, set_change_stream, set_srv)
ALL = {check.__name__.replace("_", "-"): check for check in CHECKS}
