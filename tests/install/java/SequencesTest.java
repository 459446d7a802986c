import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import dev.tessera.Engine;
import dev.tessera.Model;
import dev.tessera.ModelFiles;
import dev.tessera.Request;
import dev.tessera.Runtime;
import dev.tessera.Sequence;
import dev.tessera.TesseraException;
import dev.tessera.Trainer;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.Map;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;

/** Sequences as values, and an adapter for each request. */
final class SequencesTest {
  private static Engine engine(Model model, long adapters) {
    try (Runtime runtime = Given.runtime()) {
      return new Engine(runtime, model, Map.of("temperature", 0, "max_tokens", 6, "adapters", adapters));
    }
  }

  @Test
  @DisplayName("sequences fork, rewind, go on in any engine, and come back from files")
  void values() throws IOException {
    try (Model model = Given.model(); Engine engine = engine(model, 0)) {
      Request request = engine.submit("A computer", Map.of("keep", true, "n", 2, "temperature", 1.0));
      request.texts().join();
      Sequence first = request.sequence(0);
      request.sequence(1).close();
      Given.refused(TesseraException.NotFound.class, "not kept", () -> request.sequence(0));
      Given.refused(TesseraException.NotFound.class, "not kept", () -> engine.sequence(Long.MAX_VALUE, -1));
      Sequence fork = first.fork();
      fork.rewind(12);
      assertEquals(16, first.tokens().length);
      assertArrayEquals(Arrays.copyOf(first.tokens(), 12), fork.tokens());
      for (long count : new long[] {0, 13, -1, Long.MIN_VALUE, Long.MAX_VALUE}) {
        Given.invalid("wanted 1 to as many", () -> fork.rewind(count));
      }
      int[] all = Arrays.copyOf(fork.tokens(), 13);
      all[12] = 'x';
      String text = engine.submit(all, null).text().join();
      assertEquals(text, engine.submit(fork, new int[] {'x'}, null).text().join());
      Path path = Given.WORK.resolve("sequence");
      engine.saveSequence(fork, path);
      Sequence restored;
      try (Engine other = engine(model, 0)) {
        assertEquals(text, other.submit(fork, new int[] {'x'}, null).text().join());
        restored = other.restoreSequence(path);
        assertEquals(text, other.submit(restored, new int[] {'x'}, null).text().join());
      }
      assertArrayEquals(fork.tokens(), restored.tokens());
      Given.invalid("-1", () -> engine.submit(fork, new int[] {-1}, null));
      Given.invalid("context", () -> engine.submit(fork, new int[10000], null));
      Given.invalid("sequence is null", () -> engine.submit(null, null, null));
      Given.invalid("sequence is null", () -> engine.saveSequence(null, path));
      Given.invalid("path is null", () -> engine.saveSequence(fork, null));
      Given.invalid("path is null", () -> engine.restoreSequence(null));
      Given.refused(TesseraException.NotFound.class, "cannot create", () -> engine.saveSequence(fork, path.resolve("none")));
      Given.refused(TesseraException.NotFound.class, "nowhere", () -> engine.restoreSequence(Path.of("nowhere")));
      byte[] bytes = Files.readAllBytes(path);
      bytes[bytes.length / 2] ^= 1;
      Files.write(path, bytes);
      assertThrows(TesseraException.Corrupt.class, () -> engine.restoreSequence(path));
      fork.close();
      Given.invalid("closed", fork::fork);
      Given.invalid("closed", fork::tokens);
      Given.invalid("closed", () -> fork.rewind(1));
      Given.invalid("closed", () -> engine.submit(fork, null, null));
      Given.invalid("closed", () -> engine.saveSequence(fork, path));
      Engine closed = engine(model, 0);
      closed.close();
      Given.invalid("closed", () -> closed.sequence(0, 0));
      Given.invalid("closed", () -> closed.submit(first, null, null));
      Given.invalid("closed", () -> closed.saveSequence(first, path));
      Given.invalid("closed", () -> closed.restoreSequence(path));
      Given.invalid("closed", () -> closed.loadAdapter(path));
      Given.invalid("closed", () -> closed.dropAdapter(0));
    }
  }

  @Test
  @DisplayName("requests may each have an adapter")
  void adapters() {
    Path path = Given.WORK.resolve("served_adapter");
    try (Runtime runtime = Given.runtime(); Model model = Given.model(); Model adapted = model.withAdapters(Map.of("rank", 2));
        Engine engine = engine(model, 1); Engine without = engine(model, 0)) {
      try (Trainer trainer = Given.trainer(runtime, adapted, Map.of("batch", 4, "steps", 10, "lr", 0.1))) {
        for (int i = 0; i < 10; ++i) {
          trainer.step();
        }
        trainer.store(adapted);
        long live = engine.loadAdapterFrom(trainer);
        String text = engine.submit("A computer", Map.of("adapter", live)).text().join();
        assertEquals(text, engine.submit("A computer", Map.of("adapter", engine.loadAdapterFrom(adapted))).text().join());
        assertNotEquals(text, engine.submit("A computer", null).text().join());
        Given.invalid("no low-rank adapters", () -> engine.loadAdapterFrom(model));
        Given.invalid("trainer is null", () -> engine.loadAdapterFrom((Trainer) null));
        Given.invalid("model is null", () -> engine.loadAdapterFrom((Model) null));
      }
      ModelFiles.export(adapted, path, Map.of("format", "peft"), null);
      String plain = engine.submit("A computer", null).text().join();
      long number = engine.loadAdapter(path);
      Request request = engine.submit("A computer", Map.of("adapter", number, "keep", true));
      assertNotEquals(plain, request.text().join());
      assertEquals(plain, engine.submit("A computer", null).text().join());
      Given.refused(TesseraException.Unsupported.class, "adapter", () -> engine.saveSequence(request.sequence(0), path));
      engine.dropAdapter(number);
      assertThrows(TesseraException.NotFound.class, () -> engine.dropAdapter(number));
      assertThrows(TesseraException.class, () -> engine.submit("A computer", Map.of("adapter", number)));
      assertThrows(TesseraException.NotFound.class, () -> engine.loadAdapter(Path.of("nowhere")));
      Given.invalid("path is null", () -> engine.loadAdapter(null));
      Given.refused(TesseraException.FailedPrecondition.class, "adapters", () -> without.loadAdapter(path));
    }
  }
}
