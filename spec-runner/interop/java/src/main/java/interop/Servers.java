package interop;

import com.mongodb.ConnectionString;
import com.mongodb.MongoClientSettings;
import com.mongodb.MongoException;
import com.mongodb.client.MongoClient;
import com.mongodb.client.MongoClients;
import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.net.URLEncoder;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.GeneralSecurityException;
import java.security.KeyFactory;
import java.security.KeyStore;
import java.security.PrivateKey;
import java.security.cert.Certificate;
import java.security.cert.CertificateFactory;
import java.security.spec.PKCS8EncodedKeySpec;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.TreeMap;
import java.util.function.Consumer;
import java.util.stream.Collectors;
import javax.net.ssl.KeyManagerFactory;
import javax.net.ssl.SSLContext;
import javax.net.ssl.TrustManagerFactory;
import org.bson.Document;

/** What the checks have in common: clients by connection strings, TLS, fail points, and what is expected. */
final class Servers implements AutoCloseable {
    /** A client that is expected not to connect does not try for long. */
    static final Map<String, String> SOON = Map.of("serverSelectionTimeoutMS", "2000");

    private final Document servers;
    private final List<MongoClient> clients = new ArrayList<>();

    Servers(Document servers) {
        this.servers = servers;
    }

    /** The driver does not have what the check is about. */
    static final class Skip extends Exception {
        Skip(String reason) {
            super(reason);
        }
    }

    /** Something is not as expected. */
    static final class Mismatch extends RuntimeException {
        Mismatch(String what) {
            super(what);
        }
    }

    /** Something that may throw. */
    @FunctionalInterface
    interface Action {
        void run() throws Exception;
    }

    /** A client of the server. {@code login} is {@code user:password@}, percent-encoded, or empty. */
    MongoClient client(String server, String login, Map<String, String> options) {
        return client(server, login, options, settings -> {});
    }

    MongoClient client(
            String server,
            String login,
            Map<String, String> options,
            Consumer<MongoClientSettings.Builder> configure) {
        Map<String, String> all = new TreeMap<>(Map.of("serverSelectionTimeoutMS", "5000"));
        of(server).get("options", new Document()).forEach((name, value) -> all.put(name, value.toString()));
        all.putAll(options);
        String query = all.entrySet().stream()
                .map(option -> option.getKey() + "=" + encoded(option.getValue()))
                .collect(Collectors.joining("&"));
        String address = of(server).getString("address");
        ConnectionString uri = new ConnectionString("mongodb://" + login + address + "/?" + query);
        MongoClientSettings.Builder settings = MongoClientSettings.builder().applyConnectionString(uri);
        configure.accept(settings);
        MongoClient client = MongoClients.create(settings.build());
        clients.add(client);
        return client;
    }

    /** A client of the server that this name leads to, by the server's DNS server. */
    MongoClient clientByDns(String server, String name) {
        NameServer dns = new NameServer(of(server).getString("dns"));
        String text = "mongodb+srv://" + name + "/?tls=false&serverSelectionTimeoutMS=10000";
        MongoClientSettings.Builder settings = MongoClientSettings.builder()
                .applyConnectionString(new ConnectionString(text, dns))
                .dnsClient(dns)
                .inetAddressResolver(dns);
        MongoClient client = MongoClients.create(settings.build());
        clients.add(client);
        return client;
    }

    /** A client of the server "open". */
    MongoClient open() {
        return client("open", "", Map.of());
    }

    static Document ping(MongoClient client) {
        return client.getDatabase("admin").runCommand(new Document("ping", 1));
    }

    /** Both maps in one; where they differ, it has the value of {@code more}. */
    static Map<String, String> with(Map<String, String> options, Map<String, String> more) {
        Map<String, String> both = new TreeMap<>(options);
        both.putAll(more);
        return both;
    }

    static String encoded(String text) {
        return URLEncoder.encode(text, StandardCharsets.UTF_8).replace("+", "%20");
    }

    @Override
    public void close() {
        clients.forEach(MongoClient::close);
    }

    /** This driver takes no PEM files: a context that trusts {@code ca} and shows {@code certificate}, or none if null. */
    SSLContext tls(String server, String ca, String certificate) throws GeneralSecurityException, IOException {
        Path folder = Path.of(of(server).getString("certificates"));
        KeyStore trusted = emptyStore();
        int number = 0;
        for (Certificate authority : certificates(folder.resolve(ca))) {
            trusted.setCertificateEntry("ca" + number++, authority);
        }
        TrustManagerFactory trust = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
        trust.init(trusted);

        KeyStore own = emptyStore();
        if (certificate != null) {
            Path path = folder.resolve(certificate);
            Certificate[] chain = certificates(path).toArray(Certificate[]::new);
            String algorithm = chain[0].getPublicKey().getAlgorithm();
            own.setKeyEntry("client", privateKey(path, algorithm), new char[0], chain);
        }
        KeyManagerFactory keys = KeyManagerFactory.getInstance(KeyManagerFactory.getDefaultAlgorithm());
        keys.init(own, new char[0]);

        SSLContext context = SSLContext.getInstance("TLS");
        context.init(keys.getKeyManagers(), trust.getTrustManagers(), null);
        return context;
    }

    /** The server has this fail point while {@code action} runs. */
    static void withFailPoint(MongoClient client, Object mode, Document data, Action action) throws Exception {
        Document failPoint = new Document("configureFailPoint", "failCommand");
        client.getDatabase("admin").runCommand(new Document(failPoint).append("mode", mode).append("data", data));
        try {
            action.run();
        } finally {
            client.getDatabase("admin").runCommand(failPoint.append("mode", "off"));
        }
    }

    static void expect(Object actual, Object expected, String what) {
        if (!Objects.equals(actual, expected)) {
            throw new Mismatch(what + ": " + actual + " instead of " + expected);
        }
    }

    /** {@code action} fails with such an error, and its text or that of a cause contains {@code text}. */
    static <E extends Exception> E expectError(Class<E> kind, String text, Action action) throws Exception {
        try {
            action.run();
        } catch (Exception error) {
            if (!kind.isInstance(error)) {
                throw error;
            }
            StringBuilder all = new StringBuilder();
            for (Throwable cause = error; cause != null; cause = cause.getCause()) {
                all.append(cause).append(' ');
            }
            if (!all.toString().toLowerCase().contains(text.toLowerCase())) {
                throw new Mismatch("the error does not say \"" + text + "\": " + all);
            }
            return kind.cast(error);
        }
        throw new Mismatch("no " + kind.getSimpleName() + " came");
    }

    /** {@code action} fails, and the server gave this code. */
    static void expectCode(int code, Action action) throws Exception {
        expect(expectError(MongoException.class, "", action).getCode(), code, "error code");
    }

    private Document of(String server) {
        return servers.get(server, Document.class);
    }

    private static KeyStore emptyStore() throws GeneralSecurityException, IOException {
        KeyStore store = KeyStore.getInstance(KeyStore.getDefaultType());
        store.load(null, null);
        return store;
    }

    private static Collection<? extends Certificate> certificates(Path pem) throws GeneralSecurityException, IOException {
        String text = Files.readString(pem);
        // Keys in the same file are no certificates.
        String only = text.replaceAll("(?s)-----BEGIN [A-Z ]*PRIVATE KEY-----.*?-----END [A-Z ]*PRIVATE KEY-----", "");
        byte[] bytes = only.strip().getBytes(StandardCharsets.US_ASCII);
        return CertificateFactory.getInstance("X.509").generateCertificates(new ByteArrayInputStream(bytes));
    }

    private static PrivateKey privateKey(Path pem, String algorithm) throws GeneralSecurityException, IOException {
        String text = Files.readString(pem);
        String begin = "-----BEGIN PRIVATE KEY-----";
        String base64 = text.substring(text.indexOf(begin) + begin.length(), text.indexOf("-----END PRIVATE KEY-----"));
        byte[] key = Base64.getMimeDecoder().decode(base64.strip());
        return KeyFactory.getInstance(algorithm).generatePrivate(new PKCS8EncodedKeySpec(key));
    }
}
