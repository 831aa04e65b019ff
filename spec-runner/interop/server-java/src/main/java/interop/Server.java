package interop;

import de.bwaldvogel.mongo.MongoServer;
import de.bwaldvogel.mongo.ServerVersion;
import de.bwaldvogel.mongo.backend.memory.MemoryBackend;
import java.io.IOException;
import java.io.OutputStream;
import java.net.InetSocketAddress;

/** A MongoDB server in memory on 127.0.0.1, until standard input is closed. */
public final class Server {
    private static final String HOST = "127.0.0.1";

    private Server() {}

    public static void main(String[] args) throws IOException {
        int port = args.length == 1 ? port(args[0]) : -1;
        if (port < 0) {
            System.err.println("usage: java -jar server.jar PORT (0 to 65535; 0: any free port)");
            System.exit(2);
        }

        MongoServer server = new MongoServer(new MemoryBackend().version(ServerVersion.MONGO_5_0));
        try {
            server.bind(HOST, port);
        } catch (Exception error) { // Netty throws BindException undeclared
            System.err.println("cannot listen on " + HOST + ":" + port + ": " + error.getMessage());
            System.exit(1);
        }

        InetSocketAddress address = server.getLocalAddress();
        System.out.println("listening on " + HOST + ":" + address.getPort());
        System.out.flush();

        System.in.transferTo(OutputStream.nullOutputStream());
        server.shutdownNow();
        System.exit(0);
    }

    /** The port, or -1 if {@code text} is none. */
    private static int port(String text) {
        try {
            int port = Integer.parseInt(text);
            return port <= 65535 ? port : -1;
        } catch (NumberFormatException error) {
            return -1;
        }
    }
}
