import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.tessera.Cancellation;
import dev.tessera.Generator;
import dev.tessera.Json;
import dev.tessera.Model;
import dev.tessera.Piece;
import dev.tessera.Runtime;
import dev.tessera.Tensor;
import dev.tessera.TesseraException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.NoSuchElementException;
import java.util.Optional;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.Assertions;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;

final class GenerationTest {
  private static final Runtime RUNTIME = Given.runtime();
  private static final Model MODEL = Given.model();

  @AfterAll
  static void close() {
    RUNTIME.close();
    MODEL.close();
  }

  private static Generator generator(Object... options) {
    Map<String, Object> all = new java.util.HashMap<>();
    for (int i = 0; i < options.length; i += 2) {
      all.put((String) options[i], options[i + 1]);
    }
    return new Generator(RUNTIME, MODEL, all);
  }

  /** Not text alone. */
  private static boolean isToken(Piece piece) {
    return piece.token() >= 0;
  }

  @Test
  @DisplayName("pieces come by iterator and by stream, with their tokens; why a text ended is told")
  void pieces() {
    try (Generator generator = generator("max_tokens", 12, "temperature", 0, "trace", true)) {
      List<Integer> tokens;
      try (Stream<Piece> stream = generator.stream("A\0b")) {
        tokens = stream.filter(GenerationTest::isToken).map(Piece::token).toList();
      }
      assertEquals(12, tokens.size());
      assertEquals(Generator.Finish.LENGTH, generator.finish());
      try (Tensor logits = generator.logits()) {
        assertArrayEquals(new long[] {256}, logits.dims());
      }
      assertTrue(generator.trace().startsWith("["));
      generator.start(new int[] {'A', 0, 'b'});
      assertEquals(Generator.Finish.NONE, generator.finish());
      Iterator<Piece> pieces = generator.pieces();
      List<Integer> again = new ArrayList<>();
      while (pieces.hasNext()) {
        again.add(pieces.next().token());
      }
      again.removeIf(token -> token < 0);
      assertEquals(tokens, again);
      Assertions.assertThrows(NoSuchElementException.class, pieces::next);
      assertEquals(generator.generate("A\0b", null), generator.texts("A\0b").collect(Collectors.joining()));
      generator.start(new int[] {1}, Map.of("max_tokens", 2));
      assertEquals(2, generator.rest().filter(GenerationTest::isToken).count());
      assertEquals(2L, Json.object(generator.report()).get("tokens"));
      Given.invalid("", () -> generator.start(new int[0]));
      Given.invalid("", () -> generator.start(new int[] {256}));
      Given.invalid("the prompt is empty", () -> generator.start(""));
    }
  }

  @Test
  @DisplayName("a text has options of its own; the same seed gives the same text")
  void seeds() {
    try (Generator generator = generator("max_tokens", 1)) {
      Map<String, Object> one = Map.of("seed", 1, "temperature", 2.0, "max_tokens", 20);
      String first = generator.generate("ab", one);
      assertNotEquals(first, generator.generate("ab", Map.of("seed", 2, "temperature", 2.0, "max_tokens", 20)));
      assertEquals(first, generator.generate("ab", one));
      assertEquals(1L, Json.object(generator.report()).get("seed"));
    }
  }

  @Test
  @DisplayName("texts are cancelled: by cancel, a Cancellation, an interrupt, a closed stream")
  void cancelled() throws Exception {
    try (Generator generator = generator("max_tokens", 60)) {
      generator.start("a");
      generator.cancel();
      generator.rest().count();
      assertTrue(generator.finish() == Generator.Finish.CANCELLED || generator.finish() == Generator.Finish.LENGTH);

      Cancellation cancellation = new Cancellation();
      generator.start("a");
      cancellation.cancel();
      Given.refused(TesseraException.Cancelled.class, "Cancellation", () -> cancellation.call(generator::next));
      generator.rest().count();

      generator.start("a");
      Thread.currentThread().interrupt();
      Given.refused(TesseraException.Cancelled.class, "interrupted", generator::next);
      assertTrue(Thread.interrupted());

      try (Stream<Piece> stream = generator.stream("a")) {
        assertTrue(stream.iterator().hasNext());
      }
      generator.start("a", Map.of("max_tokens", 1));
      int count = 0;
      while (generator.finish() == Generator.Finish.NONE) {
        Optional<Piece> piece = generator.next(Duration.ZERO);
        count += piece.filter(GenerationTest::isToken).isPresent() ? 1 : 0;
      }
      assertEquals(1, count);
    }
  }
}
