package interop;

import static interop.Documents.fresh;
import static interop.Documents.id;
import static interop.Documents.numbered;
import static interop.Servers.expect;
import static interop.Servers.expectCode;
import static interop.Servers.expectError;
import static interop.Servers.ping;

import com.mongodb.MongoCommandException;
import com.mongodb.WriteConcern;
import com.mongodb.client.MongoClient;
import com.mongodb.client.MongoCollection;
import com.mongodb.client.MongoDatabase;
import com.mongodb.client.model.FindOneAndUpdateOptions;
import com.mongodb.client.model.ReturnDocument;
import com.mongodb.client.model.UpdateOptions;
import com.mongodb.client.result.InsertManyResult;
import com.mongodb.client.result.UpdateResult;
import interop.Reports.Commands;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import org.bson.BsonInt32;
import org.bson.BsonMaximumSizeExceededException;
import org.bson.Document;
import org.bson.RawBsonDocument;
import org.bson.codecs.DocumentCodec;
import org.bson.types.Binary;

/** The checks of single commands, from a ping to documents as large as a server takes. Each fails by throwing. */
final class CommandChecks {
    /** The longest document that a server takes. */
    private static final int LARGEST = 16 * 1024 * 1024;

    private CommandChecks() {}

    static void pingOnce(Servers servers) {
        expect(ping(servers.open()).get("ok", Number.class).intValue(), 1, "ok");
    }

    static void crud(Servers servers) throws Exception {
        MongoClient client = servers.open();
        MongoDatabase database = client.getDatabase("crud");
        database.drop();
        MongoCollection<Document> things = database.getCollection("things");
        expect(things.insertOne(id(1).append("n", 1)).getInsertedId(), new BsonInt32(1), "inserted id");
        InsertManyResult many = things.insertMany(List.of(id(2).append("n", 2), id(3).append("n", 2)));
        expect(many.getInsertedIds(), Map.of(0, new BsonInt32(2), 1, new BsonInt32(3)), "inserted ids");
        expectCode(11000, () -> things.insertOne(id(1)));
        List<Document> found = things.find(new Document("n", 2)).sort(new Document("_id", -1)).into(new ArrayList<>());
        expect(found, List.of(id(3).append("n", 2), id(2).append("n", 2)), "found");
        UpdateResult updated = things.updateMany(new Document("n", 2), new Document("$set", new Document("n", 5)));
        expect(List.of(updated.getMatchedCount(), updated.getModifiedCount()), List.of(2L, 2L), "matched and modified");
        Document nine = new Document("$set", new Document("n", 9));
        UpdateResult upserted = things.updateOne(id(9), nine, new UpdateOptions().upsert(true));
        expect(upserted.getUpsertedId(), new BsonInt32(9), "upserted id");
        FindOneAndUpdateOptions after = new FindOneAndUpdateOptions().returnDocument(ReturnDocument.AFTER);
        Document changed = things.findOneAndUpdate(id(1), new Document("$inc", new Document("n", 10)), after);
        expect(changed, id(1).append("n", 11), "found and modified");
        List<Document> pipeline = List.of(new Document("$match", new Document("n", 5)), new Document("$limit", 1));
        List<Document> aggregated = things.aggregate(pipeline).into(new ArrayList<>());
        expect(aggregated, List.of(id(2).append("n", 5)), "aggregated");
        expect(things.distinct("n", Integer.class).into(new TreeSet<>()), new TreeSet<>(List.of(5, 9, 11)), "distinct");
        expect(things.estimatedDocumentCount(), 4L, "count");
        expect(things.deleteOne(new Document("n", 5)).getDeletedCount(), 1L, "deleted");
        List<String> collections = database.listCollectionNames().into(new ArrayList<>());
        expect(collections, List.of("things"), "collections");
        List<String> databases = client.listDatabaseNames().into(new ArrayList<>());
        expect(databases.contains("crud"), true, "database is listed");
        things.drop();
        expect(things.find().first(), null, "document of a dropped collection");
    }

    static void unknownCommand(Servers servers) throws Exception {
        MongoDatabase admin = servers.open().getDatabase("admin");
        MongoCommandException error = expectError(
                MongoCommandException.class,
                "no such command: 'noSuchCommand'",
                () -> admin.runCommand(new Document("noSuchCommand", 1)));
        expect(error.getErrorCode(), 59, "error code");
    }

    static void unacknowledgedWrite(Servers servers) {
        // On a single connection the read follows the write.
        MongoClient client = servers.client("open", "", Map.of("maxPoolSize", "1"));
        MongoCollection<Document> collection = fresh(client, "unacknowledged");
        boolean acknowledged = collection
                .withWriteConcern(WriteConcern.UNACKNOWLEDGED)
                .insertOne(id(1))
                .wasAcknowledged();
        expect(acknowledged, false, "acknowledged");
        expect(collection.find().first(), id(1), "document");
    }

    static void largeDocument(Servers servers) {
        MongoCollection<Document> collection = fresh(servers.open(), "large");
        Document largest = documentOf(LARGEST);
        collection.insertOne(largest);
        byte[] back = collection.find().first().get("data", Binary.class).getData();
        boolean same = Arrays.equals(back, largest.get("data", Binary.class).getData());
        expect(same, true, "the same bytes came back");
        collection.drop();
    }

    static void tooLargeDocument(Servers servers) throws Exception {
        MongoClient client = servers.open();
        MongoCollection<Document> collection = client.getDatabase("test").getCollection("large");
        expectError(BsonMaximumSizeExceededException.class, "larger than", () -> collection.insertOne(documentOf(LARGEST + 1)));
        ping(client);
    }

    static void largeBatch(Servers servers) {
        Commands commands = new Commands();
        MongoClient client = servers.client("open", "", Map.of(), settings -> settings.addCommandListener(commands));
        MongoCollection<Document> collection = fresh(client, "batch");
        collection.insertMany(numbered(100_000));
        expect(commands.of("insert").size(), 1, "insert commands");
        List<Document> found = collection.find().into(new ArrayList<>());
        expect(found.equals(numbered(100_000)), true, "all came back in order");
        collection.drop();
    }

    /** A document of so many bytes. */
    private static Document documentOf(int length) {
        int rest = length - lengthOf(id(1).append("data", new Binary(new byte[0])));
        byte[] data = new byte[rest];
        for (int n = 0; n < rest; n++) {
            data[n] = (byte) (n % 251);
        }
        Document document = id(1).append("data", new Binary(data));
        expect(lengthOf(document), length, "length");
        return document;
    }

    private static int lengthOf(Document document) {
        return new RawBsonDocument(document, new DocumentCodec()).getByteBuffer().remaining();
    }
}
