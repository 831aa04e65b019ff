package interop;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import org.bson.Document;

/**
 * Runs the checks that the input file names, and prints a line for each.
 *
 * <p>The README two folders up describes the input, the lines and the exit status.
 */
public final class Main {
    private Main() {}

    public static void main(String[] args) throws IOException {
        Document input = Document.parse(Files.readString(Path.of(args[0])));
        Document servers = input.get("servers", Document.class);
        boolean failed = false;
        for (String name : input.getList("checks", String.class, List.of())) {
            failed |= !run(name, servers);
        }
        System.exit(failed ? 1 : 0);
    }

    /** Whether the check did not fail. */
    private static boolean run(String name, Document servers) {
        try (Servers own = new Servers(servers)) {
            Check check = Checks.ALL.getOrDefault(name, Sets.ALL.get(name));
            if (check == null) {
                throw new Servers.Mismatch("this program has no such check");
            }
            check.run(own);
            System.out.println("PASS " + name);
        } catch (Servers.Skip skip) {
            System.out.println("SKIP " + name + ": " + skip.getMessage());
        } catch (Exception error) { // Whatever it is, the other checks still run.
            System.out.println("FAIL " + name + ": " + error.toString().replaceAll("\\s+", " "));
            return false;
        }
        return true;
    }

    /** What a check does; it fails by throwing. */
    @FunctionalInterface
    interface Check {
        void run(Servers servers) throws Exception;
    }
}
