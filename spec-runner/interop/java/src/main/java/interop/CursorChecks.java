package interop;

import static interop.Documents.fresh;
import static interop.Documents.numbered;
import static interop.Servers.expect;
import static interop.Servers.expectCode;

import com.mongodb.client.MongoClient;
import com.mongodb.client.MongoCollection;
import com.mongodb.client.MongoCursor;
import interop.Reports.Commands;
import java.util.ArrayList;
import java.util.Map;
import org.bson.Document;

/** The checks of cursors. Each fails by throwing. */
final class CursorChecks {
    private CursorChecks() {}

    static void cursorGetMores(Servers servers) {
        // A batch filled exactly leaves the cursor open (SRV-5).
        for (int[] of : new int[][] {{3, 1, 3}, {5, 2, 2}, {4, 2, 2}, {3, 5, 0}}) {
            Commands commands = new Commands();
            MongoClient client = servers.client("open", "", Map.of(), settings -> settings.addCommandListener(commands));
            MongoCollection<Document> collection = fresh(client, "cursors");
            collection.insertMany(numbered(of[0]));
            expect(collection.find().batchSize(of[1]).into(new ArrayList<>()), numbered(of[0]), "documents");
            expect(commands.of("getMore").size(), of[2], "getMores for " + of[0] + " documents by " + of[1]);
        }
    }

    static void killCursors(Servers servers) throws Exception {
        Commands commands = new Commands();
        MongoClient client = servers.client("open", "", Map.of(), settings -> settings.addCommandListener(commands));
        MongoCollection<Document> collection = fresh(client, "killed");
        collection.insertMany(numbered(10));
        long cursorId;
        try (MongoCursor<Document> cursor = collection.find().batchSize(2).cursor()) {
            for (Document first : numbered(3)) {
                expect(cursor.next(), first, "one of the first documents, in two batches");
            }
            cursorId = cursor.getServerCursor().getId();
        }
        expect(commands.of("killCursors").size(), 1, "killCursors commands");
        long killed = commands.of("killCursors").get(0).getArray("cursors").get(0).asInt64().getValue();
        expect(killed, cursorId, "killed cursor");
        Document getMore = new Document("getMore", cursorId).append("collection", "killed");
        expectCode(43, () -> client.getDatabase("test").runCommand(getMore));
    }
}
