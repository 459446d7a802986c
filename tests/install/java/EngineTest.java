import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.tessera.Cancellation;
import dev.tessera.Chat;
import dev.tessera.Engine;
import dev.tessera.Event;
import dev.tessera.Generator;
import dev.tessera.Json;
import dev.tessera.Model;
import dev.tessera.Request;
import dev.tessera.Runtime;
import dev.tessera.Scorer;
import dev.tessera.TesseraException;
import dev.tessera.Tokenizer;
import java.time.Duration;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.NoSuchElementException;
import java.util.Optional;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;

/** Many requests at once, each collected where it was made, or all in one place. */
final class EngineTest {
  private static final String TALK = "{% for m in messages %}[{{ m.role }}]{{ m.content }};{% endfor %}"
      + "{% if add_generation_prompt %}[assistant]{% endif %}";
  private static final List<String> PROMPTS = List.of("A computer", "is", "a\0b", "A computer is", "x");

  private static Engine engine(Object... options) {
    Map<String, Object> all = new HashMap<>(Map.of("temperature", 0, "sequences", 3));
    for (int i = 0; i < options.length; i += 2) {
      all.put((String) options[i], options[i + 1]);
    }
    try (Runtime runtime = Given.runtime(); Model model = Given.model()) {
      return new Engine(runtime, model, all);
    }
  }

  /** Texts that take long. */
  private static Engine endless() {
    try (Runtime runtime = Given.runtime(); Model model = Model.create("llama:L=2,C=64,H=4,F=128,V=256,T=8192", null);
        Tokenizer bytes = Tokenizer.bytes()) {
      model.setTokenizer(bytes);
      return new Engine(runtime, model, Map.of("context", 4000, "cache_tokens", 8192, "sequences", 4));
    }
  }

  private static void noThreadLeft() throws InterruptedException {
    Given.collectUntil("no thread distributes", () -> Thread.getAllStackTraces().keySet().stream()
        .noneMatch(thread -> thread.getName().equals("tessera-engine")));
  }

  @Test
  @DisplayName("many requests at once have the texts that they have one at a time, on any threads")
  void together() throws Exception {
    try (Engine engine = engine("max_tokens", 12)) {
      List<String> together = engine.generate(PROMPTS, null);
      for (int i = 0; i < PROMPTS.size(); ++i) {
        assertEquals(together.get(i), engine.submit(PROMPTS.get(i), null).text().join());
      }
      String[] found = new String[20];
      List<Thread> threads = IntStream.range(0, found.length).mapToObj(i -> Given.daemon(() ->
          found[i] = engine.submit(PROMPTS.get(i % 5), null).stream().map(Event::text).collect(Collectors.joining()))).toList();
      for (Thread thread : threads) {
        thread.join();
      }
      for (int i = 0; i < found.length; ++i) {
        assertEquals(together.get(i % 5), found[i]);
      }
      assertEquals(together.get(0), engine.submit(new int[] {'A', ' ', 'c', 'o', 'm', 'p', 'u', 't', 'e', 'r'}, null).text().join());
      String said = engine.submit("[user]Hi;[assistant]", null).text().join();
      assertEquals(said, engine.submitMessages(List.of(new Chat.Message("user", "Hi")), Map.of("template", TALK)).text().join());
      assertEquals(said, engine.submitMessages("[{\"role\": \"user\", \"content\": \"Hi\"}]", Map.of("template", TALK)).text().join());
      List<String> samples = engine.submit("A", Map.of("n", 3, "temperature", 1.5, "seed", 1)).texts().join();
      assertEquals(3, samples.size());
      assertNotEquals(samples.get(0), samples.get(1));
      assertEquals(true, Json.object(engine.report()).get("batch_invariant"));
      noThreadLeft();
    }
  }

  @Test
  @DisplayName("events of all requests come in one place, or each to its request, not both")
  void events() {
    try (Engine engine = engine("max_tokens", 4, "n", 2)) {
      assertTrue(engine.descriptor() >= 0);
      assertEquals(Optional.empty(), engine.next());
      assertEquals(Optional.empty(), engine.next(Duration.ofMillis(1)));
      Request one = engine.submit("A computer", Map.of("logprobs", 1, "prompt_logprobs", 0));
      Request two = engine.submit("is", Map.of("n", 1));
      assertEquals(1, two.number());
      Map<String, Integer> counts = new HashMap<>();
      for (Iterator<Event> events = engine.events(); events.hasNext();) {
        Event event = events.next();
        counts.merge(event.request() + " " + event.index() + " " + event.kind(), 1, Integer::sum);
        if (event.kind() == Event.Kind.TOKEN) {
          assertEquals(event.request() == 0, event.details().contains("\"logprob\""));
        } else if (event.kind() == Event.Kind.END) {
          assertEquals(Generator.Finish.LENGTH, event.finish());
          assertEquals(4L, Json.object(event.details()).get("tokens"));
          assertEquals(Optional.empty(), event.failure());
        }
      }
      assertThrows(NoSuchElementException.class, () -> engine.events().next());
      for (String end : List.of("0 0 END", "0 1 END", "1 0 END", "0 0 PROMPT")) {
        assertEquals(1, counts.get(end), end);
      }
      assertTrue(counts.get("0 1 TOKEN") >= 4 && counts.get("1 0 TOKEN") >= 4);
      Given.refused(TesseraException.FailedPrecondition.class, "Engine.next", () -> one.events().hasNext());
      Given.refused(TesseraException.FailedPrecondition.class, "Engine.next", one::text);
    }
    try (Engine engine = engine("max_tokens", 1)) {
      Request request = engine.submit("a", null);
      request.text().join();
      Given.refused(TesseraException.FailedPrecondition.class, "collected by its requests", engine::next);
      Given.refused(TesseraException.FailedPrecondition.class, "collected already", request::texts);
      assertFalse(request.events().hasNext());
      Event failed = new Event(Event.Kind.END, 0, 0, -1, "", Generator.Finish.FAILED,
          "{\"error\":{\"code\":5,\"message\":\"no room\"}}");
      assertEquals("no room", failed.failure().orElseThrow().getMessage());
      assertEquals(TesseraException.Code.OUT_OF_MEMORY, failed.failure().orElseThrow().code());
    }
  }

  @Test
  @DisplayName("requests end by cancel, futures, interrupts, Cancellations and closed streams, and with the engine")
  void ended() throws Exception {
    Engine engine = endless();
    Request other = engine.submit("A", Map.of("max_tokens", 5));
    CompletableFuture<String> text = engine.submit("A computer", null).text();
    assertTrue(text.cancel(true));
    assertThrows(CancellationException.class, text::join);
    CompletableFuture<String> late = engine.submit("A computer", null).text().orTimeout(1, TimeUnit.MILLISECONDS);
    assertThrows(CompletionException.class, late::join);
    Cancellation cancellation = new Cancellation();
    Iterator<Event> events = engine.submit("A computer", null).events();
    assertTrue(events.hasNext());
    cancellation.cancel();
    Given.refused(TesseraException.Cancelled.class, "Cancellation", () -> cancellation.call(() -> {
      while (events.hasNext()) {
        events.next();
      }
      return 0;
    }));
    Thread.currentThread().interrupt();
    Given.refused(TesseraException.Cancelled.class, "interrupted", () -> engine.generate(List.of("A", "B"), null));
    assertTrue(Thread.interrupted());
    try (var stream = engine.submit("A computer", null).stream()) {
      assertTrue(stream.iterator().hasNext());
    }
    Request cancelled = engine.submit("A computer", null);
    Given.daemon(cancelled::cancel).join();
    Event last = null;
    for (Iterator<Event> all = cancelled.events(); all.hasNext();) {
      last = all.next();
    }
    assertEquals(Generator.Finish.CANCELLED, last.finish());
    engine.cancel(Long.MAX_VALUE);
    assertFalse(other.text().join().isEmpty());
    noThreadLeft();

    // Who waits hears of the close, even where nothing would ever come.
    CompletableFuture<String> waiting = engine.submit("A", null).text();
    Iterator<Event> asked = engine.submit("A", Map.of("logits", true)).events();
    assertEquals(Event.Kind.LOGITS, asked.next().kind());
    Given.daemon(engine::close);
    Given.invalid("closed", asked::hasNext);
    assertTrue(assertThrows(CompletionException.class, waiting::join).getCause() instanceof TesseraException.InvalidArgument);
    Given.invalid("closed", () -> engine.submit("a", null));
    Given.invalid("closed", () -> engine.submit(new int[1], null));
    Given.invalid("closed", () -> engine.submitMessages("[]", null));
    Given.invalid("closed", engine::report);
    Given.invalid("closed", engine::descriptor);
    Given.invalid("closed", () -> engine.logits(0, 0));
    Given.invalid("closed", () -> engine.answer(0, 0, null));
    cancelled.cancel();
    engine.close();
    noThreadLeft();
  }

  @Test
  @DisplayName("a wrong request is refused, and does no harm to others")
  void wrong() {
    try (Engine engine = engine("max_tokens", 20)) {
      String alone = engine.submit("A computer", null).text().join();
      Request right = engine.submit("A computer", null);
      Given.invalid("n", () -> engine.submit("a", Map.of("n", "x")));
      Given.invalid("n", () -> engine.submit("a", Map.of("n", 0)));
      Given.invalid("256", () -> engine.submit(new int[] {1, 256}, null));
      Given.invalid("", () -> engine.submit(new int[0], null));
      Given.invalid("prompt", () -> engine.submit((String) null, null));
      Given.invalid("ids", () -> engine.submit((int[]) null, null));
      Given.invalid("messages", () -> engine.submitMessages((String) null, null));
      Given.invalid("surrogate", () -> engine.submit("\uD800", null));
      Given.invalid("context", () -> engine.submit("x".repeat(1000), null));
      Given.invalid("maximum_tokens", () -> engine.submit("a", Map.of("maximum_tokens", 1)));
      Given.refused(TesseraException.NotFound.class, "does not wait", () -> engine.answer(99, 0, null));
      Given.invalid("prompt", () -> engine.generate(Arrays.asList("a", null), null));
      assertEquals(alone, right.text().join());
    }
  }

  @Test
  @DisplayName("logits may be changed before a token is drawn")
  void logits() {
    try (Engine engine = engine("max_tokens", 6)) {
      String plain = engine.submit("A computer", null).text().join();
      assertEquals(plain, engine.submit("A computer", Map.of("logits", true)).text().join());
      Request request = engine.submit("A computer", Map.of("logits", true));
      StringBuilder text = new StringBuilder();
      for (Iterator<Event> events = request.events(); events.hasNext();) {
        Event event = events.next();
        text.append(event.text());
        if (event.kind() == Event.Kind.LOGITS) {
          float[] logits = request.logits(event.index());
          assertEquals(256, logits.length);
          float[] kept = logits.clone();
          Given.invalid("256", () -> request.answer(event.index(), new float[3]));
          Arrays.fill(logits, Float.NEGATIVE_INFINITY);
          logits['x'] = kept['x'];
          request.answer(event.index(), logits);
          kept = logits.clone();
          assertArrayEquals(kept, logits);
        }
      }
      assertEquals("xxxxxx", text.toString());
    }
  }

  @Test
  @DisplayName("vectors and scores of prompts")
  void prompts() {
    try (Engine engine = engine("embeddings", 1, "n", 2)) {
      Request vector = engine.submit("A computer", Map.of("embed", true, "normalize", 1));
      Request scored = engine.submit("A computer", Map.of("score_from", 2));
      float[][] rows = vector.embedding().join();
      assertEquals(1, rows.length);
      double squares = 0;
      for (float value : rows[0]) {
        squares += (double) value * value;
      }
      assertEquals(1, squares, 1e-5);
      assertEquals(10, engine.submit("A computer", Map.of("embed", 1, "pooling", "none")).embedding().join().length);
      Scorer.Scores scores = scored.scores().join();
      assertEquals(8, scores.logProbs().length);
      assertEquals(8, scores.greedy().length);
      Given.refused(TesseraException.NotFound.class, "no scores", () -> engine.scores(scored.number()));
      Given.invalid("max_tokens", () -> engine.submit("a", Map.of("embed", 1, "max_tokens", 3)));
    }
  }
}
