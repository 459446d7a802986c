import dev.tessera.Engine;
import dev.tessera.Model;
import dev.tessera.Request;
import dev.tessera.Runtime;
import dev.tessera.Sequence;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.Map;
import java.util.stream.Collectors;

/**
 * Sequences that are forked, rewound, saved and restored go on; the twin of tests/install/sequences.c.
 *
 * <pre>Sequences MODEL FILE        FILE is written</pre>
 */
final class Sequences {
  private Sequences() {}

  /** Prints and gives the sequence of the text that follows a sequence, which may be null, and then these tokens. */
  private static Sequence goOn(Engine engine, String name, Sequence from, String more) {
    byte[] bytes = more.getBytes(StandardCharsets.UTF_8);
    int[] ids = new int[bytes.length];
    for (int i = 0; i < ids.length; ++i) {
      ids[i] = bytes[i];
    }
    Map<String, ?> keep = Map.of("keep", true);
    Request request = from == null ? engine.submit(ids, keep) : engine.submit(from, ids.length == 0 ? null : ids, keep);
    request.text().join();
    Sequence made = request.sequence(0);
    System.out.println(name + ": " + Arrays.stream(made.tokens()).mapToObj(Integer::toString).collect(Collectors.joining(" ")));
    return made;
  }

  public static void main(String[] arguments) {
    Map<String, ?> options = Map.of("devices", "cpu:2", "temperature", 0, "max_tokens", 8);
    Path file = Path.of(arguments[1]);
    try (Runtime runtime = new Runtime(); Model model = Model.load(Path.of(arguments[0]))) {
      Sequence fork;
      try (Engine engine = new Engine(runtime, model, options)) {
        Sequence first = goOn(engine, "first", null, "A computer");
        fork = first.fork();
        fork.rewind(12);
        goOn(engine, "fork", fork, " x");
        goOn(engine, "original", first, "");
        engine.saveSequence(first, file);
      }
      try (Engine engine = new Engine(runtime, model, options)) {
        goOn(engine, "restored", engine.restoreSequence(file), "");
        goOn(engine, "elsewhere", fork, " x");
      }
    }
  }
}
