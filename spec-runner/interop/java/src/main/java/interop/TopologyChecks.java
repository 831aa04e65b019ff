package interop;

import static interop.Documents.fresh;
import static interop.Documents.id;
import static interop.Documents.numbered;
import static interop.FailPointChecks.failing;
import static interop.FailPointChecks.times;
import static interop.Servers.SOON;
import static interop.Servers.expect;
import static interop.Servers.expectError;
import static interop.Servers.ping;
import static interop.Servers.with;
import static interop.Servers.withFailPoint;

import com.mongodb.MongoClientSettings;
import com.mongodb.MongoException;
import com.mongodb.client.MongoClient;
import com.mongodb.client.MongoCollection;
import com.mongodb.connection.ClusterType;
import com.mongodb.connection.ServerType;
import interop.Reports.Commands;
import interop.Reports.Heartbeats;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import java.util.function.Consumer;
import org.bson.Document;

/** The checks of a replica set of one member, and of a server behind a load balancer. Each fails by throwing. */
final class TopologyChecks {
    static final Map<String, String> REPLICA_SET = Map.of("replicaSet", "rs0");

    private TopologyChecks() {}

    static void streamingHello(Servers servers) throws Exception {
        // The server answers at most so late without a change.
        Heartbeats frequent = new Heartbeats();
        Map<String, String> options = with(REPLICA_SET, Map.of("heartbeatFrequencyMS", "500"));
        ping(servers.client("replica-set", "", options, reportingTo(frequent)));
        for (int n = 0; n < 3; n++) {
            Reports.await(frequent.awaited, 5, "reply that was awaited", awaited -> awaited);
        }

        // A change is told at once, long before the next heartbeat.
        Heartbeats rare = new Heartbeats();
        Map<String, String> often = Map.of("heartbeatFrequencyMS", "60000", "serverSelectionTimeoutMS", "10000");
        ping(servers.client("replica-set", "", with(REPLICA_SET, often), reportingTo(rare)));
        MongoClient operator = servers.client("replica-set", "", Map.of("directConnection", "true"));
        operator.getDatabase("admin").runCommand(new Document("replSetStepDown", 1).append("force", true));
        Reports.await(rare.types, 3, "step-down", ServerType.REPLICA_SET_SECONDARY::equals);
        Reports.await(rare.types, 10, "end of the step-down", ServerType.REPLICA_SET_PRIMARY::equals);
    }

    static void replicaSet(Servers servers) throws Exception {
        Commands commands = new Commands();
        Heartbeats found = new Heartbeats();
        // This driver retries after a write concern error only if the server shuts down; then it waits for the next hello.
        Map<String, String> options = with(REPLICA_SET, Map.of("heartbeatFrequencyMS", "500"));
        MongoClient client = servers.client("replica-set", "", options, settings -> {
            settings.addCommandListener(commands);
            reportingTo(found).accept(settings);
        });
        ping(client);
        Reports.await(found.clusters, 5, "primary of rs0", event -> event.getNewDescription().getType()
                        == ClusterType.REPLICA_SET
                && event.getNewDescription().getServerDescriptions().stream()
                        .anyMatch(server -> server.isPrimary() && "rs0".equals(server.getSetName())));
        MongoCollection<Document> collection = fresh(client, "retried");
        collection.insertOne(id(1).append("n", 0));
        Document concernError = new Document("code", 91)
                .append("codeName", "ShutdownInProgress")
                .append("errmsg", "shutting down");
        // The first is not executed before it fails. The second is: the server must know it again by its number.
        int n = 0;
        for (Document failure : List.of(new Document("errorCode", 262), new Document("writeConcernError", concernError))) {
            n++;
            commands.sent.clear();
            Document data = failing("update").append("errorLabels", List.of("RetryableWriteError"));
            data.putAll(failure);
            withFailPoint(client, times(1), data, () -> {
                collection.updateOne(id(1), new Document("$inc", new Document("n", 1)));
            });
            expect(collection.find().first().getInteger("n"), n, "executions after " + failure);
            List<Long> numbers = commands.of("update").stream()
                    .map(update -> update.getInt64("txnNumber").getValue())
                    .toList();
            expect(numbers.size(), 2, "attempts");
            expect(numbers.get(0), numbers.get(1), "number of the attempts");
        }
    }

    static void loadBalanced(Servers servers) throws Exception {
        Commands commands = new Commands();
        Map<String, String> options = Map.of("loadBalanced", "true");
        MongoClient client =
                servers.client("load-balanced", "", options, settings -> settings.addCommandListener(commands));
        MongoCollection<Document> collection = fresh(client, "balanced");
        collection.insertMany(numbered(5));
        expect(collection.find().batchSize(2).into(new ArrayList<>()), numbered(5), "documents");
        TreeSet<String> services = new TreeSet<>(commands.services);
        expect(services.size(), 1, "services");
        expect(services.contains("null"), false, "a service was missing");
        MongoClient other = servers.client("replica-set", "", with(options, SOON));
        expectError(MongoException.class, "load balanc", () -> ping(other));
    }

    private static Consumer<MongoClientSettings.Builder> reportingTo(Heartbeats heartbeats) {
        return settings -> settings
                .applyToServerSettings(server ->
                        server.addServerListener(heartbeats).addServerMonitorListener(heartbeats))
                .applyToClusterSettings(cluster -> cluster.addClusterListener(heartbeats));
    }
}
