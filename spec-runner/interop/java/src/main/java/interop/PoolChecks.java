package interop;

import static interop.Documents.fresh;
import static interop.Documents.id;
import static interop.Servers.expect;
import static interop.Servers.ping;

import com.mongodb.client.MongoCollection;
import interop.Reports.PoolEvents;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.bson.Document;

/** The checks of the connection pool. Each fails by throwing. */
final class PoolChecks {
    private PoolChecks() {}

    static void threads32(Servers servers) throws Exception {
        MongoCollection<Document> collection =
                fresh(servers.client("open", "", Map.of("maxPoolSize", "32")), "threads");
        inThreads(threads -> {
            List<Callable<Void>> work = new ArrayList<>();
            for (int thread = 0; thread < 32; thread++) {
                int number = thread;
                work.add(() -> {
                    for (int n = 0; n < 20; n++) {
                        Document document = id(number * 100 + n).append("text", number + "-" + n);
                        collection.insertOne(document);
                        expect(collection.find(id(document.getInteger("_id"))).first(), document, "document");
                    }
                    return null;
                });
            }
            for (Future<Void> result : threads.invokeAll(work)) {
                result.get();
            }
        });
        expect(collection.estimatedDocumentCount(), 640L, "count");
    }

    static void poolEvents(Servers servers) {
        PoolEvents events = new PoolEvents();
        ping(servers.client("open", "", Map.of(), settings ->
                settings.applyToConnectionPoolSettings(pool -> pool.addConnectionPoolListener(events))));
        List<String> expected = List.of(
                "poolCreated", "poolReady", "checkOutStarted", "created", "ready", "checkedOut", "checkedIn");
        expect(events.names, expected, "events");
    }

    /** Lends 32 threads. */
    static void inThreads(Work work) throws Exception {
        ExecutorService threads = Executors.newFixedThreadPool(32);
        try {
            work.in(threads);
        } finally {
            threads.shutdownNow();
        }
    }

    @FunctionalInterface
    interface Work {
        void in(ExecutorService threads) throws Exception;
    }
}
