package interop;

import static interop.Servers.encoded;
import static interop.Servers.expect;
import static interop.Servers.expectCode;
import static interop.Servers.expectError;
import static interop.Servers.ping;
import static interop.TlsChecks.X509;
import static interop.TlsChecks.trusting;

import com.mongodb.MongoSecurityException;
import com.mongodb.client.MongoClient;
import com.mongodb.client.MongoCollection;
import com.mongodb.client.MongoDatabase;
import java.util.List;
import java.util.Map;
import javax.net.ssl.SSLContext;
import org.bson.Document;

/** The checks of authentication, and of users that are made by a command. Each fails by throwing. */
final class AuthenticationChecks {
    static final String USER = "user:secret@";
    private static final String SUBJECT = "CN=client,OU=cmap,O=cmap";

    private AuthenticationChecks() {}

    static void scramSha1(Servers servers) {
        expectLogin(servers.client("auth", USER, Map.of("authMechanism", "SCRAM-SHA-1")), "user", "admin");
    }

    static void scramSha256(Servers servers) {
        expectLogin(servers.client("auth", USER, Map.of("authMechanism", "SCRAM-SHA-256")), "user", "admin");
    }

    static void scramSha256Saslprep(Servers servers) {
        // The server was told I, soft hyphen, X; SASLprep makes IX of it, and of the Roman numeral nine.
        for (String password : List.of("IX", "\u2168")) {
            String login = "sasl:" + encoded(password) + "@";
            expectLogin(servers.client("auth", login, Map.of("authMechanism", "SCRAM-SHA-256")), "sasl", "admin");
        }
    }

    static void scramDefault(Servers servers) {
        expectLogin(servers.client("auth", USER, Map.of()), "user", "admin");
    }

    static void plain(Servers servers) throws Exception {
        Map<String, String> options = Map.of("tls", "true", "authMechanism", "PLAIN", "authSource", "$external");
        SSLContext context = servers.tls("tls", "ca.pem", null);
        expectLogin(servers.client("tls", USER, options, trusting(context)), "user", "$external");
    }

    static void x509(Servers servers) throws Exception {
        SSLContext context = servers.tls("tls", "ca.pem", "client.pem");
        expectLogin(servers.client("tls", "", X509, trusting(context)), SUBJECT, "$external");
    }

    static void encryptedClientKey(Servers servers) throws Servers.Skip {
        throw new Servers.Skip("the driver reads no key files; it is given an SSLContext");
    }

    static void wrongPassword(Servers servers) throws Exception {
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

    static void unknownX509User(Servers servers) throws Exception {
        MongoClient client = servers.client("tls", "", X509, trusting(servers.tls("tls", "ca.pem", "stranger.pem")));
        expectError(MongoSecurityException.class, "authenticating", () -> ping(client));
    }

    static void createUser(Servers servers) {
        MongoDatabase users = servers.client("auth", USER, Map.of()).getDatabase("users");
        users.runCommand(new Document("dropAllUsersFromDatabase", 1));
        users.runCommand(new Document("createUser", "new")
                .append("pwd", "p\u00e4ss")
                .append("roles", List.of(new Document("role", "readWrite").append("db", "users")))
                .append("mechanisms", List.of("SCRAM-SHA-256")));
        String login = "new:" + encoded("p\u00e4ss") + "@";
        expectLogin(servers.client("auth", login, Map.of("authSource", "users")), "new", "users");
    }

    /** The server knows who it is, and lets in whom it knows. */
    private static void expectLogin(MongoClient client, String user, String database) {
        Document status = client.getDatabase("admin").runCommand(new Document("connectionStatus", 1));
        List<Document> users = status.get("authInfo", Document.class).getList("authenticatedUsers", Document.class);
        expect(users, List.of(new Document("user", user).append("db", database)), "authenticated users");
        if (!database.equals("users")) {
            client.getDatabase("test").getCollection("logins").insertOne(new Document("user", user));
        }
    }
}
