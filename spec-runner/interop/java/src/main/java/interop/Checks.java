package interop;

import static interop.Servers.SOON;
import static interop.Servers.encoded;
import static interop.Servers.expect;
import static interop.Servers.expectError;
import static interop.Servers.withFailPoint;

import com.mongodb.MongoClientSettings;
import com.mongodb.MongoCommandException;
import com.mongodb.MongoException;
import com.mongodb.MongoSecurityException;
import com.mongodb.MongoSocketReadException;
import com.mongodb.MongoTimeoutException;
import com.mongodb.WriteConcern;
import com.mongodb.client.MongoClient;
import com.mongodb.client.MongoCollection;
import com.mongodb.client.MongoCursor;
import com.mongodb.client.MongoDatabase;
import com.mongodb.client.model.FindOneAndUpdateOptions;
import com.mongodb.client.model.ReturnDocument;
import com.mongodb.client.model.UpdateOptions;
import com.mongodb.client.result.InsertManyResult;
import com.mongodb.client.result.UpdateResult;
import com.mongodb.connection.ClusterType;
import com.mongodb.connection.ServerType;
import interop.Reports.Commands;
import interop.Reports.Heartbeats;
import interop.Reports.PoolEvents;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.function.Consumer;
import java.util.stream.IntStream;
import javax.net.ssl.SSLContext;
import org.bson.BsonInt32;
import org.bson.BsonMaximumSizeExceededException;
import org.bson.Document;
import org.bson.RawBsonDocument;
import org.bson.codecs.DocumentCodec;
import org.bson.types.Binary;

/** The checks. Each connects anew, and fails by throwing. */
final class Checks {
    static final Map<String, Main.Check> ALL = Map.ofEntries(
            Map.entry("scram-sha-1", Checks::scramSha1),
            Map.entry("scram-sha-256", Checks::scramSha256),
            Map.entry("scram-sha-256-saslprep", Checks::scramSha256Saslprep),
            Map.entry("scram-default", Checks::scramDefault),
            Map.entry("plain", Checks::plain),
            Map.entry("x509", Checks::x509),
            Map.entry("encrypted-client-key", Checks::encryptedClientKey),
            Map.entry("wrong-password", Checks::wrongPassword),
            Map.entry("unknown-x509-user", Checks::unknownX509User),
            Map.entry("wrong-certificate", Checks::wrongCertificate),
            Map.entry("wrong-host-name", Checks::wrongHostName),
            Map.entry("compressor-snappy", servers -> compressor(servers, "snappy")),
            Map.entry("compressor-zlib", servers -> compressor(servers, "zlib")),
            Map.entry("compressor-zstd", servers -> compressor(servers, "zstd")),
            Map.entry("ping", Checks::ping),
            Map.entry("crud", Checks::crud),
            Map.entry("create-user", Checks::createUser),
            Map.entry("unknown-command", Checks::unknownCommand),
            Map.entry("unacknowledged-write", Checks::unacknowledgedWrite),
            Map.entry("large-document", Checks::largeDocument),
            Map.entry("too-large-document", Checks::tooLargeDocument),
            Map.entry("large-batch", Checks::largeBatch),
            Map.entry("cursor-get-mores", Checks::cursorGetMores),
            Map.entry("kill-cursors", Checks::killCursors),
            Map.entry("fail-point-error-code", Checks::failPointErrorCode),
            Map.entry("fail-point-close-connection", Checks::failPointCloseConnection),
            Map.entry("fail-point-block-connection", Checks::failPointBlockConnection),
            Map.entry("fail-point-times", Checks::failPointTimes),
            Map.entry("fail-point-app-name", Checks::failPointAppName),
            Map.entry("error-labels", Checks::errorLabels),
            Map.entry("streaming-hello", Checks::streamingHello),
            Map.entry("replica-set", Checks::replicaSet),
            Map.entry("load-balanced", Checks::loadBalanced),
            Map.entry("threads-32", Checks::threads32),
            Map.entry("pool-events", Checks::poolEvents));

    private static final String USER = "user:secret@";
    private static final String SUBJECT = "CN=client,OU=cmap,O=cmap";

    /** The longest document that a server takes. */
    private static final int LARGEST = 16 * 1024 * 1024;

    private static final Map<String, String> TLS = Map.of("tls", "true");
    private static final Map<String, String> X509 = Map.of("tls", "true", "authMechanism", "MONGODB-X509");
    private static final Map<String, String> REPLICA_SET = Map.of("replicaSet", "rs0");

    private Checks() {}

    /** The server knows who it is, and lets in whom it knows. */
    private static void expectLogin(MongoClient client, String user, String database) {
        Document status = client.getDatabase("admin").runCommand(new Document("connectionStatus", 1));
        List<Document> users = status.get("authInfo", Document.class).getList("authenticatedUsers", Document.class);
        expect(users, List.of(new Document("user", user).append("db", database)), "authenticated users");
        if (!database.equals("users")) {
            client.getDatabase("test").getCollection("logins").insertOne(new Document("user", user));
        }
    }

    private static Document ping(MongoClient client) {
        return client.getDatabase("admin").runCommand(new Document("ping", 1));
    }

    /** An empty collection. */
    private static MongoCollection<Document> fresh(MongoClient client, String name) {
        MongoCollection<Document> collection = client.getDatabase("test").getCollection(name);
        collection.drop();
        return collection;
    }

    private static Document id(int id) {
        return new Document("_id", id);
    }

    /** Documents that are numbered from 0 up. */
    private static List<Document> numbered(int count) {
        return IntStream.range(0, count).mapToObj(Checks::id).toList();
    }

    private static Map<String, String> with(Map<String, String> options, Map<String, String> more) {
        Map<String, String> both = new HashMap<>(options);
        both.putAll(more);
        return both;
    }

    private static Consumer<MongoClientSettings.Builder> trusting(SSLContext context) {
        return settings -> settings.applyToSslSettings(tls -> tls.enabled(true).context(context));
    }

    // Authentication.

    private static void scramSha1(Servers servers) {
        expectLogin(servers.client("auth", USER, Map.of("authMechanism", "SCRAM-SHA-1")), "user", "admin");
    }

    private static void scramSha256(Servers servers) {
        expectLogin(servers.client("auth", USER, Map.of("authMechanism", "SCRAM-SHA-256")), "user", "admin");
    }

    private static void scramSha256Saslprep(Servers servers) {
        // The server was told I, soft hyphen, X; SASLprep makes IX of it, and of the Roman numeral nine.
        for (String password : List.of("IX", "\u2168")) {
            String login = "sasl:" + encoded(password) + "@";
            expectLogin(servers.client("auth", login, Map.of("authMechanism", "SCRAM-SHA-256")), "sasl", "admin");
        }
    }

    private static void scramDefault(Servers servers) {
        expectLogin(servers.client("auth", USER, Map.of()), "user", "admin");
    }

    private static void plain(Servers servers) throws Exception {
        Map<String, String> options = Map.of("tls", "true", "authMechanism", "PLAIN", "authSource", "$external");
        SSLContext context = servers.tls("tls", "ca.pem", null);
        expectLogin(servers.client("tls", USER, options, trusting(context)), "user", "$external");
    }

    private static void x509(Servers servers) throws Exception {
        SSLContext context = servers.tls("tls", "ca.pem", "client.pem");
        expectLogin(servers.client("tls", "", X509, trusting(context)), SUBJECT, "$external");
    }

    private static void encryptedClientKey(Servers servers) throws Servers.Skip {
        throw new Servers.Skip("the driver reads no key files; it is given an SSLContext");
    }

    private static void wrongPassword(Servers servers) throws Exception {
        for (String mechanism : List.of("SCRAM-SHA-1", "SCRAM-SHA-256")) {
            MongoClient client = servers.client("auth", "user:wrong@", Map.of("authMechanism", mechanism));
            expectError(MongoSecurityException.class, "error 18 (AuthenticationFailed)", () -> ping(client));
        }
        MongoClient stranger = servers.client("auth", "nobody:secret@", Map.of());
        expectError(MongoSecurityException.class, "error 18 (AuthenticationFailed)", () -> ping(stranger));
        MongoClient nobody = servers.client("auth", "", Map.of());
        MongoCollection<Document> logins = nobody.getDatabase("test").getCollection("logins");
        expectCode(13, () -> logins.insertOne(new Document()));
    }

    private static void unknownX509User(Servers servers) throws Exception {
        MongoClient client = servers.client("tls", "", X509, trusting(servers.tls("tls", "ca.pem", "stranger.pem")));
        expectError(MongoSecurityException.class, "authenticating", () -> ping(client));
    }

    // TLS.

    private static void wrongCertificate(Servers servers) throws Exception {
        ping(servers.client("tls", "", TLS, trusting(servers.tls("tls", "ca.pem", "client.pem"))));
        Map<String, String> options = with(TLS, SOON);
        MongoClient distrustful = servers.client("tls", "", options, trusting(servers.tls("tls", "other-ca.pem", null)));
        expectError(MongoTimeoutException.class, "unable to find valid certification path", () -> ping(distrustful));
        SSLContext other = servers.tls("tls", "ca.pem", "other-client.pem");
        // The JDK does not even show a certificate of an authority that the server did not name.
        MongoClient distrusted = servers.client("tls", "", with(X509, SOON), trusting(other));
        expectError(MongoSecurityException.class, "authenticating", () -> ping(distrusted));
    }

    private static void wrongHostName(Servers servers) throws Exception {
        SSLContext context = servers.tls("wrong-host", "ca.pem", null);
        Map<String, String> options = with(TLS, SOON);
        MongoClient strict = servers.client("wrong-host", "", options, trusting(context));
        expectError(MongoTimeoutException.class, "127.0.0.1", () -> ping(strict));
        Map<String, String> lenient = with(options, Map.of("tlsAllowInvalidHostnames", "true"));
        ping(servers.client("wrong-host", "", lenient, trusting(context)));
    }

    // Compression.

    private static void compressor(Servers servers, String name) {
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

    // Commands.

    private static void ping(Servers servers) {
        expect(ping(servers.open()).get("ok", Number.class).intValue(), 1, "ok");
    }

    private static void crud(Servers servers) throws Exception {
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

    private static void createUser(Servers servers) {
        MongoDatabase users = servers.client("auth", USER, Map.of()).getDatabase("users");
        users.runCommand(new Document("dropAllUsersFromDatabase", 1));
        users.runCommand(new Document("createUser", "new")
                .append("pwd", "p\u00e4ss")
                .append("roles", List.of(new Document("role", "readWrite").append("db", "users")))
                .append("mechanisms", List.of("SCRAM-SHA-256")));
        String login = "new:" + encoded("p\u00e4ss") + "@";
        expectLogin(servers.client("auth", login, Map.of("authSource", "users")), "new", "users");
    }

    private static void unknownCommand(Servers servers) throws Exception {
        MongoDatabase admin = servers.open().getDatabase("admin");
        MongoCommandException error = expectError(
                MongoCommandException.class,
                "no such command: 'noSuchCommand'",
                () -> admin.runCommand(new Document("noSuchCommand", 1)));
        expect(error.getErrorCode(), 59, "error code");
    }

    private static void unacknowledgedWrite(Servers servers) {
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

    private static void largeDocument(Servers servers) {
        MongoCollection<Document> collection = fresh(servers.open(), "large");
        Document largest = documentOf(LARGEST);
        collection.insertOne(largest);
        byte[] back = collection.find().first().get("data", Binary.class).getData();
        boolean same = Arrays.equals(back, largest.get("data", Binary.class).getData());
        expect(same, true, "the same bytes came back");
        collection.drop();
    }

    private static void tooLargeDocument(Servers servers) throws Exception {
        MongoClient client = servers.open();
        MongoCollection<Document> collection = client.getDatabase("test").getCollection("large");
        expectError(BsonMaximumSizeExceededException.class, "larger than", () -> collection.insertOne(documentOf(LARGEST + 1)));
        ping(client);
    }

    private static void largeBatch(Servers servers) {
        Commands commands = new Commands();
        MongoClient client = servers.client("open", "", Map.of(), settings -> settings.addCommandListener(commands));
        MongoCollection<Document> collection = fresh(client, "batch");
        collection.insertMany(numbered(100_000));
        expect(commands.of("insert").size(), 1, "insert commands");
        List<Document> found = collection.find().into(new ArrayList<>());
        expect(found.equals(numbered(100_000)), true, "all came back in order");
        collection.drop();
    }

    // Cursors.

    private static void cursorGetMores(Servers servers) {
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

    private static void killCursors(Servers servers) throws Exception {
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

    // Fail points.

    private static Document times(int count) {
        return new Document("times", count);
    }

    private static Document failing(String command) {
        return new Document("failCommands", List.of(command));
    }

    /** {@code action} fails, and the server gave this code. */
    private static void expectCode(int code, Servers.Action action) throws Exception {
        expect(expectError(MongoException.class, "", action).getCode(), code, "error code");
    }

    private static void failPointErrorCode(Servers servers) throws Exception {
        MongoClient client = servers.open();
        withFailPoint(client, times(1), failing("ping").append("errorCode", 2), () -> {
            MongoException error = expectError(MongoCommandException.class, "failpoint", () -> ping(client));
            expect(error.getCode(), 2, "error code");
            ping(client);
        });
    }

    private static void failPointCloseConnection(Servers servers) throws Exception {
        MongoClient client = servers.open();
        withFailPoint(client, times(1), failing("ping").append("closeConnection", true), () -> {
            expectError(MongoSocketReadException.class, "", () -> ping(client));
            ping(client);
        });
    }

    private static void failPointBlockConnection(Servers servers) throws Exception {
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

    private static void failPointTimes(Servers servers) throws Exception {
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

    private static void failPointAppName(Servers servers) throws Exception {
        MongoClient victim = servers.client("open", "", Map.of("appName", "victim"));
        MongoClient other = servers.client("open", "", Map.of("appName", "other"));
        Document data = failing("ping").append("errorCode", 2).append("appName", "victim");
        withFailPoint(other, "alwaysOn", data, () -> {
            ping(other);
            expectCode(2, () -> ping(victim));
        });
    }

    private static void errorLabels(Servers servers) throws Exception {
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

    // Topologies.

    private static Consumer<MongoClientSettings.Builder> reportingTo(Heartbeats heartbeats) {
        return settings -> settings
                .applyToServerSettings(server ->
                        server.addServerListener(heartbeats).addServerMonitorListener(heartbeats))
                .applyToClusterSettings(cluster -> cluster.addClusterListener(heartbeats));
    }

    private static void streamingHello(Servers servers) throws Exception {
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

    private static void replicaSet(Servers servers) throws Exception {
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

    private static void loadBalanced(Servers servers) throws Exception {
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
        MongoClient open = servers.client("open", "", with(options, SOON));
        expectError(MongoException.class, "load balanc", () -> ping(open));
    }

    private static void threads32(Servers servers) throws Exception {
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

    /** Lends 32 threads. */
    private static void inThreads(Work work) throws Exception {
        ExecutorService threads = Executors.newFixedThreadPool(32);
        try {
            work.in(threads);
        } finally {
            threads.shutdownNow();
        }
    }

    @FunctionalInterface
    private interface Work {
        void in(ExecutorService threads) throws Exception;
    }

    private static void poolEvents(Servers servers) {
        PoolEvents events = new PoolEvents();
        ping(servers.client("open", "", Map.of(), settings ->
                settings.applyToConnectionPoolSettings(pool -> pool.addConnectionPoolListener(events))));
        List<String> expected = List.of(
                "poolCreated", "poolReady", "checkOutStarted", "created", "ready", "checkedOut", "checkedIn");
        expect(events.names, expected, "events");
    }
}
