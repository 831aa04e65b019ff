package interop;

import static interop.Servers.SOON;
import static interop.Servers.expectError;
import static interop.Servers.ping;
import static interop.Servers.with;

import com.mongodb.MongoClientSettings;
import com.mongodb.MongoSecurityException;
import com.mongodb.MongoTimeoutException;
import com.mongodb.client.MongoClient;
import java.util.Map;
import java.util.function.Consumer;
import javax.net.ssl.SSLContext;

/** The checks of certificates. Each fails by throwing. */
final class TlsChecks {
    static final Map<String, String> TLS = Map.of("tls", "true");
    static final Map<String, String> X509 = Map.of("tls", "true", "authMechanism", "MONGODB-X509");

    private TlsChecks() {}

    static void wrongCertificate(Servers servers) throws Exception {
        ping(servers.client("tls", "", TLS, trusting(servers.tls("tls", "ca.pem", "client.pem"))));
        Map<String, String> options = with(TLS, SOON);
        MongoClient distrustful = servers.client("tls", "", options, trusting(servers.tls("tls", "other-ca.pem", null)));
        expectError(MongoTimeoutException.class, "unable to find valid certification path", () -> ping(distrustful));
        SSLContext other = servers.tls("tls", "ca.pem", "other-client.pem");
        // The JDK does not even show a certificate of an authority that the server did not name.
        MongoClient distrusted = servers.client("tls", "", with(X509, SOON), trusting(other));
        expectError(MongoSecurityException.class, "authenticating", () -> ping(distrusted));
    }

    static void wrongHostName(Servers servers) throws Exception {
        SSLContext context = servers.tls("wrong-host", "ca.pem", null);
        Map<String, String> options = with(TLS, SOON);
        MongoClient strict = servers.client("wrong-host", "", options, trusting(context));
        expectError(MongoTimeoutException.class, "127.0.0.1", () -> ping(strict));
        Map<String, String> lenient = with(options, Map.of("tlsAllowInvalidHostnames", "true"));
        ping(servers.client("wrong-host", "", lenient, trusting(context)));
    }

    /** Settings of a client that uses this context. */
    static Consumer<MongoClientSettings.Builder> trusting(SSLContext context) {
        return settings -> settings.applyToSslSettings(tls -> tls.enabled(true).context(context));
    }
}
