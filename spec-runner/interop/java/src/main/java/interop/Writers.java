package interop;

import com.mongodb.ConnectionString;
import com.mongodb.MongoClientSettings;
import com.mongodb.client.MongoClient;
import com.mongodb.client.MongoClients;
import com.mongodb.client.MongoCollection;
import com.mongodb.client.model.Filters;
import com.mongodb.client.model.Updates;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicBoolean;
import org.bson.Document;

/**
 * Writers that go on while the hub before their deployment is upgraded, until standard input ends. Prints what they have met, as JSON.
 *
 * <p>Usage: URI WRITERS COLLECTION. Each writer inserts documents WRITER-NUMBER, changes each by updateMany, and reads it.
 */
public final class Writers {
    private static final long REST = 20;

    private final Map<String, Integer> acknowledged = new ConcurrentHashMap<>(Map.of("insert", 0, "update", 0, "find", 0));
    private final Map<String, Integer> errors = new ConcurrentHashMap<>();

    private Writers() {}

    public static void main(String[] args) throws Exception {
        int count = Integer.parseInt(args[1]);
        MongoClientSettings settings =
                MongoClientSettings.builder()
                        .applyConnectionString(new ConnectionString(args[0]))
                        .applyToConnectionPoolSettings(pool -> pool.maxSize(count))
                        .build();
        Writers writers = new Writers();
        try (MongoClient client = MongoClients.create(settings)) {
            writers.run(client.getDatabase("upgrades").getCollection(args[2]), count);
        }
        Document met = new Document();
        met.append("acknowledged", new Document(Map.copyOf(writers.acknowledged)));
        met.append("errors", new Document(Map.copyOf(writers.errors)));
        System.out.println(met.toJson());
    }

    private void run(MongoCollection<Document> collection, int count) throws Exception {
        AtomicBoolean ended = new AtomicBoolean();
        List<Thread> threads = new ArrayList<>();
        for (int writer = 0; writer < count; writer++) {
            String name = writer + "-";
            Thread thread =
                    new Thread(
                            () -> {
                                for (int number = 1; !ended.get(); number++) {
                                    write(collection, name + number);
                                    rest();
                                }
                            });
            thread.start();
            threads.add(thread);
        }
        System.in.readAllBytes();
        ended.set(true);
        for (Thread thread : threads) {
            thread.join();
        }
    }

    private void write(MongoCollection<Document> collection, String id) {
        note("insert", () -> collection.insertOne(new Document("_id", id)));
        note("update", () -> collection.updateMany(Filters.eq(id), Updates.inc("times", 1)));
        note("find", () -> collection.find(Filters.eq(id)).first());
    }

    private void note(String step, Runnable run) {
        try {
            run.run();
            acknowledged.merge(step, 1, Integer::sum);
        } catch (RuntimeException error) { // Whatever it is, the writer goes on.
            // A name of a field has no dots.
            String text = (step + ": " + error).replace('.', ' ');
            errors.merge(text.substring(0, Math.min(text.length(), 200)), 1, Integer::sum);
        }
    }

    private static void rest() {
        try {
            Thread.sleep(REST);
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
        }
    }
}
