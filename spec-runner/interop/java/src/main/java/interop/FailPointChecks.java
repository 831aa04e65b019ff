package interop;

import static interop.PoolChecks.inThreads;
import static interop.Servers.expect;
import static interop.Servers.expectCode;
import static interop.Servers.expectError;
import static interop.Servers.ping;
import static interop.Servers.withFailPoint;
import static interop.TopologyChecks.REPLICA_SET;

import com.mongodb.MongoCommandException;
import com.mongodb.MongoException;
import com.mongodb.MongoSocketReadException;
import com.mongodb.client.MongoClient;
import com.mongodb.client.MongoCollection;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Future;
import org.bson.Document;

/** The checks of fail points, and of the labels of errors that they cause. Each fails by throwing. */
final class FailPointChecks {
    private FailPointChecks() {}

    static void failPointErrorCode(Servers servers) throws Exception {
        MongoClient client = servers.open();
        withFailPoint(client, times(1), failing("ping").append("errorCode", 2), () -> {
            MongoException error = expectError(MongoCommandException.class, "failpoint", () -> ping(client));
            expect(error.getCode(), 2, "error code");
            ping(client);
        });
    }

    static void failPointCloseConnection(Servers servers) throws Exception {
        MongoClient client = servers.open();
        withFailPoint(client, times(1), failing("ping").append("closeConnection", true), () -> {
            expectError(MongoSocketReadException.class, "", () -> ping(client));
            ping(client);
        });
    }

    static void failPointBlockConnection(Servers servers) throws Exception {
        MongoClient client = servers.open();
        Document data = failing("ping").append("blockConnection", true).append("blockTimeMS", 500);
        withFailPoint(client, times(1), data, () -> inThreads(threads -> {
            Future<Long> blocked = threads.submit(() -> milliseconds(client, "ping"));
            Future<Long> other = threads.submit(() -> milliseconds(client, "buildInfo"));
            expect(blocked.get() >= 500, true, blocked.get() + " ms are half a second");
            expect(other.get() < blocked.get(), true, "another connection was not blocked");
        }));
    }

    private static long milliseconds(MongoClient client, String command) {
        long start = System.nanoTime();
        client.getDatabase("admin").runCommand(new Document(command, 1));
        return (System.nanoTime() - start) / 1_000_000;
    }

    static void failPointTimes(Servers servers) throws Exception {
        MongoClient client = servers.open();
        Map<Object, String> modes = Map.of(times(2), "--+", new Document("skip", 1), "+--", "alwaysOn", "---");
        for (Map.Entry<Object, String> mode : modes.entrySet()) {
            withFailPoint(client, mode.getKey(), failing("ping").append("errorCode", 2), () -> {
                expect(outcomes(client, 3), mode.getValue(), "outcomes in the mode " + mode.getKey());
            });
            expect(outcomes(client, 1), "+", "outcome when it is off");
        }
    }

    private static String outcomes(MongoClient client, int count) {
        StringBuilder outcomes = new StringBuilder();
        for (int n = 0; n < count; n++) {
            try {
                ping(client);
                outcomes.append('+');
            } catch (MongoCommandException error) {
                expect(error.getCode(), 2, "error code");
                outcomes.append('-');
            }
        }
        return outcomes.toString();
    }

    static void failPointAppName(Servers servers) throws Exception {
        MongoClient victim = servers.client("open", "", Map.of("appName", "victim"));
        MongoClient other = servers.client("open", "", Map.of("appName", "other"));
        Document data = failing("ping").append("errorCode", 2).append("appName", "victim");
        withFailPoint(other, "alwaysOn", data, () -> {
            ping(other);
            expectCode(2, () -> ping(victim));
        });
    }

    static void errorLabels(Servers servers) throws Exception {
        MongoClient client = servers.open();
        List<String> labels = List.of("Mine", "Yours");
        Document data = failing("ping").append("errorCode", 2).append("errorLabels", labels);
        withFailPoint(client, times(1), data, () -> {
            MongoException error = expectError(MongoCommandException.class, "", () -> ping(client));
            expect(labels.stream().filter(error::hasErrorLabel).toList(), labels, "labels");
        });
        // A replica set labels what a driver may retry (SRV-8): a command with a number. This driver retries once.
        MongoClient member = servers.client("replica-set", "", REPLICA_SET);
        withFailPoint(member, times(2), failing("insert").append("errorCode", 262), () -> {
            MongoCollection<Document> collection = member.getDatabase("test").getCollection("labels");
            MongoException error =
                    expectError(MongoException.class, "", () -> collection.insertOne(new Document()));
            expect(error.hasErrorLabel("RetryableWriteError"), true, "RetryableWriteError");
        });
    }

    static Document times(int count) {
        return new Document("times", count);
    }

    static Document failing(String command) {
        return new Document("failCommands", List.of(command));
    }
}
