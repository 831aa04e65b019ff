package interop;

import static interop.Documents.fresh;
import static interop.Documents.id;
import static interop.Servers.expect;

import com.mongodb.client.MongoClient;
import com.mongodb.client.MongoCollection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.bson.Document;

/** The checks of the compressors. Each fails by throwing. */
final class CompressionChecks {
    private CompressionChecks() {}

    static void compressor(Servers servers, String name) {
        MongoClient observer = servers.open();
        Map<String, List<Long>> before = compressedBytes(observer);
        MongoClient client = servers.client("open", "", Map.of("compressors", name));
        MongoCollection<Document> collection = fresh(client, "compressed-" + name);
        Document document = id(1).append("text", "a".repeat(100_000));
        collection.insertOne(document);
        expect(collection.find().first(), document, "document");
        Map<String, List<Long>> after = compressedBytes(observer);
        expect(after.containsKey(name), true, "the server counts for " + name);
        after.forEach((other, bytes) -> {
            List<Long> then = before.get(other);
            boolean grew = bytes.get(0) > then.get(0) && bytes.get(1) > then.get(1);
            expect(grew, other.equals(name), "use of " + other);
        });
    }

    /** For each compressor, how many bytes came and left compressed. */
    private static Map<String, List<Long>> compressedBytes(MongoClient client) {
        Document status = client.getDatabase("admin").runCommand(new Document("serverStatus", 1));
        Document compression = status.get("network", Document.class).get("compression", Document.class);
        Map<String, List<Long>> bytes = new HashMap<>();
        compression.forEach((name, value) -> {
            Document of = (Document) value;
            long came = of.get("decompressor", Document.class).getLong("bytesIn");
            bytes.put(name, List.of(came, of.get("compressor", Document.class).getLong("bytesOut")));
        });
        return bytes;
    }
}
