package interop;

import com.mongodb.connection.ServerType;
import com.mongodb.event.ClusterDescriptionChangedEvent;
import com.mongodb.event.ClusterListener;
import com.mongodb.event.CommandListener;
import com.mongodb.event.CommandStartedEvent;
import com.mongodb.event.CommandSucceededEvent;
import com.mongodb.event.ConnectionCheckOutFailedEvent;
import com.mongodb.event.ConnectionCheckOutStartedEvent;
import com.mongodb.event.ConnectionCheckedInEvent;
import com.mongodb.event.ConnectionCheckedOutEvent;
import com.mongodb.event.ConnectionClosedEvent;
import com.mongodb.event.ConnectionCreatedEvent;
import com.mongodb.event.ConnectionPoolClearedEvent;
import com.mongodb.event.ConnectionPoolClosedEvent;
import com.mongodb.event.ConnectionPoolCreatedEvent;
import com.mongodb.event.ConnectionPoolListener;
import com.mongodb.event.ConnectionPoolReadyEvent;
import com.mongodb.event.ConnectionReadyEvent;
import com.mongodb.event.ServerDescriptionChangedEvent;
import com.mongodb.event.ServerHeartbeatSucceededEvent;
import com.mongodb.event.ServerListener;
import com.mongodb.event.ServerMonitorListener;
import java.util.List;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.function.Predicate;
import org.bson.BsonDocument;
import org.bson.types.ObjectId;

/** What the driver reports of itself. */
final class Reports {
    private Reports() {}

    /** The commands that a client sent, and the services that answered. */
    static final class Commands implements CommandListener {
        final List<CommandStartedEvent> sent = new CopyOnWriteArrayList<>();
        final List<String> services = new CopyOnWriteArrayList<>();

        List<BsonDocument> of(String name) {
            return sent.stream()
                    .filter(event -> event.getCommandName().equals(name))
                    .map(CommandStartedEvent::getCommand)
                    .toList();
        }

        @Override
        public void commandStarted(CommandStartedEvent event) {
            // The driver may use the command's memory again.
            sent.add(new CommandStartedEvent(
                    event.getRequestContext(),
                    event.getOperationId(),
                    event.getRequestId(),
                    event.getConnectionDescription(),
                    event.getDatabaseName(),
                    event.getCommandName(),
                    event.getCommandName().equals("insert") ? new BsonDocument() : event.getCommand().clone()));
        }

        @Override
        public void commandSucceeded(CommandSucceededEvent event) {
            ObjectId service = event.getConnectionDescription().getServiceId();
            services.add(String.valueOf(service));
        }
    }

    /** What a client's monitor finds out. */
    static final class Heartbeats implements ServerMonitorListener, ServerListener, ClusterListener {
        final BlockingQueue<Boolean> awaited = new LinkedBlockingQueue<>();
        final BlockingQueue<ServerType> types = new LinkedBlockingQueue<>();
        final BlockingQueue<ClusterDescriptionChangedEvent> clusters = new LinkedBlockingQueue<>();

        @Override
        public void serverHeartbeatSucceeded(ServerHeartbeatSucceededEvent event) {
            awaited.add(event.isAwaited());
        }

        @Override
        public void serverDescriptionChanged(ServerDescriptionChangedEvent event) {
            types.add(event.getNewDescription().getType());
        }

        @Override
        public void clusterDescriptionChanged(ClusterDescriptionChangedEvent event) {
            clusters.add(event);
        }
    }

    /** Takes values until one is as wanted; the check fails if none comes in time. */
    static <T> T await(BlockingQueue<T> values, long seconds, String what, Predicate<T> wanted)
            throws InterruptedException {
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(seconds);
        while (true) {
            T value = values.poll(deadline - System.nanoTime(), TimeUnit.NANOSECONDS);
            if (value == null) {
                throw new Servers.Mismatch("within " + seconds + " s there was no " + what);
            }
            if (wanted.test(value)) {
                return value;
            }
        }
    }

    /** The names of what happened in a pool, in order. */
    static final class PoolEvents implements ConnectionPoolListener {
        final List<String> names = new CopyOnWriteArrayList<>();

        @Override
        public void connectionPoolCreated(ConnectionPoolCreatedEvent event) {
            names.add("poolCreated");
        }

        @Override
        public void connectionPoolReady(ConnectionPoolReadyEvent event) {
            names.add("poolReady");
        }

        @Override
        public void connectionPoolCleared(ConnectionPoolClearedEvent event) {
            names.add("poolCleared");
        }

        @Override
        public void connectionPoolClosed(ConnectionPoolClosedEvent event) {
            names.add("poolClosed");
        }

        @Override
        public void connectionCreated(ConnectionCreatedEvent event) {
            names.add("created");
        }

        @Override
        public void connectionReady(ConnectionReadyEvent event) {
            names.add("ready");
        }

        @Override
        public void connectionClosed(ConnectionClosedEvent event) {
            names.add("closed");
        }

        @Override
        public void connectionCheckOutStarted(ConnectionCheckOutStartedEvent event) {
            names.add("checkOutStarted");
        }

        @Override
        public void connectionCheckOutFailed(ConnectionCheckOutFailedEvent event) {
            names.add("checkOutFailed");
        }

        @Override
        public void connectionCheckedOut(ConnectionCheckedOutEvent event) {
            names.add("checkedOut");
        }

        @Override
        public void connectionCheckedIn(ConnectionCheckedInEvent event) {
            names.add("checkedIn");
        }
    }
}
