import dev.tessera.Generator;
import dev.tessera.Model;
import dev.tessera.Piece;
import dev.tessera.Runtime;
import dev.tessera.TesseraException;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.Map;
import java.util.stream.Stream;

/**
 * Continues a prompt, printing the text as it comes; the twin of samples/c/generate.c.
 *
 * <pre>Generate MODEL PROMPT [TOKENS [DEVICES [TEMPERATURE]]]        e.g.  Generate tuned.tsr "Once upon" 50 cpu:2 0.8</pre>
 */
public final class Generate {
  public static void main(String[] args) {
    if (args.length < 2) {
      System.err.println("usage: Generate MODEL PROMPT [TOKENS [DEVICES [TEMPERATURE]]]");
      System.exit(2);
    }
    try {
      run(args);
    } catch (TesseraException e) {
      System.err.println(e.code().text() + ": " + e.getMessage());
      System.exit(1);
    }
  }

  private static void run(String[] args) {
    Map<String, Object> options = Map.of(
        "max_tokens", args.length > 2 ? Long.parseLong(args[2]) : 100,
        "devices", args.length > 3 ? args[3] : "cpu:1",
        "temperature", args.length > 4 ? Double.parseDouble(args[4]) : 0.0);
    PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
    try (Runtime runtime = new Runtime();
        Model model = Model.load(Path.of(args[0]));
        Generator generator = new Generator(runtime, model, options);
        Stream<Piece> pieces = generator.stream(args[1])) {
      out.print(args[1]);
      pieces.forEach(piece -> out.writeBytes(piece.bytes()));
      out.println();
    }
  }
}
