package interop;

import java.util.Map;

/** The checks of servers that are alone, by name. Each connects anew, and fails by throwing. */
final class Checks {
    static final Map<String, Main.Check> ALL = Map.ofEntries(
            Map.entry("scram-sha-1", AuthenticationChecks::scramSha1),
            Map.entry("scram-sha-256", AuthenticationChecks::scramSha256),
            Map.entry("scram-sha-256-saslprep", AuthenticationChecks::scramSha256Saslprep),
            Map.entry("scram-default", AuthenticationChecks::scramDefault),
            Map.entry("plain", AuthenticationChecks::plain),
            Map.entry("x509", AuthenticationChecks::x509),
            Map.entry("encrypted-client-key", AuthenticationChecks::encryptedClientKey),
            Map.entry("wrong-password", AuthenticationChecks::wrongPassword),
            Map.entry("unknown-x509-user", AuthenticationChecks::unknownX509User),
            Map.entry("wrong-certificate", TlsChecks::wrongCertificate),
            Map.entry("wrong-host-name", TlsChecks::wrongHostName),
            Map.entry("compressor-snappy", servers -> CompressionChecks.compressor(servers, "snappy")),
            Map.entry("compressor-zlib", servers -> CompressionChecks.compressor(servers, "zlib")),
            Map.entry("compressor-zstd", servers -> CompressionChecks.compressor(servers, "zstd")),
            Map.entry("ping", CommandChecks::pingOnce),
            Map.entry("crud", CommandChecks::crud),
            Map.entry("create-user", AuthenticationChecks::createUser),
            Map.entry("unknown-command", CommandChecks::unknownCommand),
            Map.entry("unacknowledged-write", CommandChecks::unacknowledgedWrite),
            Map.entry("large-document", CommandChecks::largeDocument),
            Map.entry("too-large-document", CommandChecks::tooLargeDocument),
            Map.entry("large-batch", CommandChecks::largeBatch),
            Map.entry("cursor-get-mores", CursorChecks::cursorGetMores),
            Map.entry("kill-cursors", CursorChecks::killCursors),
            Map.entry("fail-point-error-code", FailPointChecks::failPointErrorCode),
            Map.entry("fail-point-close-connection", FailPointChecks::failPointCloseConnection),
            Map.entry("fail-point-block-connection", FailPointChecks::failPointBlockConnection),
            Map.entry("fail-point-times", FailPointChecks::failPointTimes),
            Map.entry("fail-point-app-name", FailPointChecks::failPointAppName),
            Map.entry("error-labels", FailPointChecks::errorLabels),
            Map.entry("streaming-hello", TopologyChecks::streamingHello),
            Map.entry("replica-set", TopologyChecks::replicaSet),
            Map.entry("load-balanced", TopologyChecks::loadBalanced),
            Map.entry("threads-32", PoolChecks::threads32),
            Map.entry("pool-events", PoolChecks::poolEvents));

    private Checks() {}
}
