package interop;

import static interop.Servers.expect;

import com.mongodb.ReadPreference;
import com.mongodb.Tag;
import com.mongodb.TagSet;
import com.mongodb.WriteConcern;
import com.mongodb.client.MongoChangeStreamCursor;
import com.mongodb.client.MongoClient;
import com.mongodb.client.MongoCollection;
import com.mongodb.client.model.DeleteOneModel;
import com.mongodb.client.model.InsertOneModel;
import com.mongodb.client.model.UpdateOneModel;
import com.mongodb.client.model.changestream.ChangeStreamDocument;
import java.util.List;
import java.util.Map;
import java.util.stream.StreamSupport;
import org.bson.Document;

/** The checks of a replica set with several members. Each fails by throwing. */
final class Sets {
    static final Map<String, Main.Check> ALL = Map.of(
            "set-secondary-reads", Sets::secondaryReads,
            "set-step-down", Sets::stepDown,
            "set-kill", Sets::kill,
            "set-change-stream", Sets::changeStream,
            "set-srv", Sets::srv);

    /** The name that leads to the members, at their DNS server. */
    private static final String SRV_NAME = "members.cmap.test";

    /** The tags of the members. */
    private static final List<String> NUMBERS = List.of("0", "1", "2");

    private static final WriteConcern EVERYWHERE = new WriteConcern(3);

    private Sets() {}

    /** A client that is told of one member, and has to find the others. */
    private static MongoClient clientOfSet(Servers servers) {
        return servers.client("members", "", Map.of("replicaSet", "rs0", "serverSelectionTimeoutMS", "10000"));
    }

    private static Document hello(MongoClient client, ReadPreference preference) {
        return client.getDatabase("admin").runCommand(new Document("hello", 1), preference);
    }

    private static String primary(MongoClient client) {
        return hello(client, ReadPreference.primary()).getString("me");
    }

    private static MongoCollection<Document> collection(MongoClient client, String name, WriteConcern concern) {
        return client.getDatabase("test").getCollection(name).withWriteConcern(concern);
    }

    /** An empty collection, whose documents all members have. */
    private static MongoCollection<Document> fresh(MongoClient client, String name) {
        MongoCollection<Document> collection = collection(client, name, EVERYWHERE);
        collection.drop();
        return collection;
    }

    private static Document id(int id) {
        return new Document("_id", id);
    }

    private static List<Integer> ids(MongoCollection<Document> collection) {
        return StreamSupport.stream(collection.find().spliterator(), false)
                .map(document -> document.getInteger("_id"))
                .toList();
    }

    private static void secondaryReads(Servers servers) {
        MongoClient client = clientOfSet(servers);
        fresh(client, "secondaryReads").insertOne(id(1));
        Document primary = hello(client, ReadPreference.primary());
        for (String number : NUMBERS) {
            Document tags = new Document("number", number);
            if (!tags.equals(primary.get("tags"))) {
                ReadPreference preference = ReadPreference.secondary(new TagSet(new Tag("number", number)));
                Document found = hello(client, preference);
                expect(found.getBoolean("secondary"), true, "is a secondary");
                expect(found.get("tags"), tags, "tags");
                MongoCollection<Document> collection = client.getDatabase("test").getCollection("secondaryReads");
                expect(ids(collection.withReadPreference(preference)), List.of(1), "documents");
            }
        }
    }

    private static void stepDown(Servers servers) {
        MongoClient client = clientOfSet(servers);
        MongoCollection<Document> collection = fresh(client, "stepDown");
        collection.insertOne(id(1));
        String before = primary(client);
        client.getDatabase("admin").runCommand(new Document("replSetStepDown", 2));
        // The driver finds the next primary, and sends again what the old one refuses.
        collection.insertOne(id(2));
        expect(primary(client).equals(before), false, "the old member is the primary");
        expect(ids(collection), List.of(1, 2), "documents");
    }

    private static void kill(Servers servers) {
        MongoClient client = clientOfSet(servers);
        fresh(client, "kill").insertOne(id(1));
        String before = primary(client);
        client.getDatabase("admin").runCommand(new Document("testDeployment", "kill").append("member", before));
        collection(client, "kill", WriteConcern.MAJORITY).insertOne(id(2));
        expect(primary(client).equals(before), false, "the old member is the primary");

        client.getDatabase("admin").runCommand(new Document("testDeployment", "restart").append("member", before));
        // All members have it once the one that was killed has caught up.
        MongoCollection<Document> collection = collection(client, "kill", EVERYWHERE);
        collection.insertOne(id(3));
        expect(ids(collection), List.of(1, 2, 3), "documents");
    }

    private static void changeStream(Servers servers) {
        MongoClient client = clientOfSet(servers);
        MongoCollection<Document> collection = fresh(client, "changes");
        try (MongoChangeStreamCursor<ChangeStreamDocument<Document>> stream = collection.watch().cursor()) {
            collection.insertOne(id(1));
            expect(stream.next().getOperationTypeString(), "insert", "change");
            // The stream goes on over another connection.
            Document data = new Document("failCommands", List.of("getMore")).append("closeConnection", true);
            client.getDatabase("admin")
                    .runCommand(new Document("configureFailPoint", "failCommand")
                            .append("mode", new Document("times", 1))
                            .append("data", data));
            collection.bulkWrite(List.of(
                    new InsertOneModel<>(id(2)),
                    new UpdateOneModel<>(id(1), new Document("$set", new Document("x", 1))),
                    new DeleteOneModel<>(id(1))));
            for (String kind : List.of("insert", "update", "delete")) {
                expect(stream.next().getOperationTypeString(), kind, "change of the bulk write");
            }
        }
    }

    private static void srv(Servers servers) {
        MongoClient client = servers.clientByDns("members", SRV_NAME);
        MongoCollection<Document> collection = fresh(client, "srv");
        collection.insertOne(id(1));
        expect(ids(collection), List.of(1), "documents");
        // The TXT record names the set, whose members name themselves.
        Document found = hello(client, ReadPreference.secondary());
        expect(found.getBoolean("secondary"), true, "is a secondary");
    }
}
