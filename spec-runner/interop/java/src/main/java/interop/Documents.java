package interop;

import com.mongodb.client.MongoClient;
import com.mongodb.client.MongoCollection;
import java.util.List;
import java.util.stream.IntStream;
import org.bson.Document;

/** Collections and documents that checks have in common. */
final class Documents {
    private Documents() {}

    /** An empty collection. */
    static MongoCollection<Document> fresh(MongoClient client, String name) {
        MongoCollection<Document> collection = client.getDatabase("test").getCollection(name);
        collection.drop();
        return collection;
    }

    static Document id(int id) {
        return new Document("_id", id);
    }

    /** Documents that are numbered from 0 up. */
    static List<Document> numbered(int count) {
        return IntStream.range(0, count).mapToObj(Documents::id).toList();
    }
}
