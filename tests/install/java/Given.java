import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.tessera.Dataset;
import dev.tessera.Model;
import dev.tessera.Runtime;
import dev.tessera.TesseraException;
import dev.tessera.Tokenizer;
import dev.tessera.Trainer;
import java.nio.file.Path;
import java.util.Map;
import java.util.function.BooleanSupplier;
import org.junit.jupiter.api.function.Executable;

/** What the tests are given: a model whose tokens are bytes, a text, and a folder to write to. */
final class Given {
  static final Path MODEL = Path.of(System.getProperty("model"));
  static final Path TEXT = Path.of(System.getProperty("text"));
  static final Path WORK = Path.of(System.getProperty("work"));

  private Given() {}

  static Runtime runtime() {
    return new Runtime();
  }

  static Model model() {
    return Model.load(MODEL);
  }

  static Trainer trainer(Runtime runtime, Model model, Map<String, ?> options) {
    try (Tokenizer tokenizer = model.tokenizer(); Dataset dataset = Dataset.open(TEXT, tokenizer, Map.of("seq", 32))) {
      return new Trainer(runtime, model, dataset, options);
    }
  }

  /** The exception of a kind, whose message says {@code wanted}. */
  static <T extends TesseraException> T refused(Class<T> kind, String wanted, Executable body) {
    T thrown = assertThrows(kind, body);
    assertTrue(thrown.getMessage().contains(wanted), () -> "found \"" + thrown.getMessage() + "\", wanted \"" + wanted + "\"");
    return thrown;
  }

  static void invalid(String wanted, Executable body) {
    refused(TesseraException.InvalidArgument.class, wanted, body);
  }

  /** Collects garbage until something happens. */
  static void collectUntil(String what, BooleanSupplier happened) throws InterruptedException {
    for (int i = 0; i < 500 && !happened.getAsBoolean(); ++i) {
      System.gc();
      Thread.sleep(10);
    }
    assertTrue(happened.getAsBoolean(), what);
  }

  static Thread daemon(Runnable body) {
    Thread thread = new Thread(body);
    thread.setDaemon(true);
    thread.start();
    assertNotNull(thread);
    return thread;
  }
}
