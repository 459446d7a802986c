import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.tessera.Cancellation;
import dev.tessera.Dataset;
import dev.tessera.Json;
import dev.tessera.Model;
import dev.tessera.ModelFiles;
import dev.tessera.Run;
import dev.tessera.RunEvent;
import dev.tessera.Runtime;
import dev.tessera.TesseraException;
import dev.tessera.Tokenizer;
import dev.tessera.Trainer;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.stream.Collectors;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;

final class RunTest {
  private static final Runtime RUNTIME = Given.runtime();
  private static final Model MODEL = Given.model();
  private static final Dataset DATA = data();

  private static Dataset data() {
    try (Tokenizer tokenizer = MODEL.tokenizer()) {
      String text = "A computer is a machine that computes. ".repeat(60);
      return Dataset.ofText(text, tokenizer, Map.of("seq", 16, "eval_fraction", 0.1));
    }
  }

  @AfterAll
  static void close() {
    DATA.close();
    MODEL.close();
    RUNTIME.close();
  }

  private static Trainer trainer() {
    return new Trainer(RUNTIME, MODEL, DATA, Map.of("batch", 4, "steps", 6, "lr", 1e-3));
  }

  /** With evaluations and checkpoints every second step. */
  private static Map<String, Object> options(Path out) {
    return new HashMap<>(Map.of("out", out, "eval_every", 2, "checkpoint_every", 2, "keep_best", true, "samples", "A",
        "sample_tokens", 2, "metrics", out + ".jsonl"));
  }

  private static String name(RunEvent event) {
    return event.kind().toString().toLowerCase(java.util.Locale.ROOT) + " " + event.step();
  }

  @Test
  @DisplayName("a run tells what happens in order, and writes the best")
  void whole() throws IOException {
    Path out = Given.WORK.resolve("run.tsr");
    Map<String, ?> options = options(out);
    Run.check(options, MODEL, DATA);
    ModelFiles.checkOptions("run", options);
    Trainer trainer = trainer();
    try (Run run = new Run(trainer, options)) {
      trainer.close();
      assertEquals(Optional.empty(), run.outcome());
      // A checkpoint is whole at the latest before the next one is begun.
      assertEquals("step 1, step 2, evaluation 2, sample 2, step 3, step 4, evaluation 4, sample 4, checkpoint 2, step 5, "
          + "step 6, evaluation 6, sample 6, checkpoint 4, checkpoint 6, progress 6",
          run.stream().map(RunTest::name).distinct().collect(Collectors.joining(", ")));
      assertEquals("finished", run.outcome().orElseThrow());
      assertEquals(Optional.empty(), run.next());
      Map<String, Object> report = Json.object(run.report());
      assertEquals(List.of(6L, 6L, 6L, 6L, out + ".checkpoint", "finished"), List.of(report.get("step"), report.get("steps"),
          report.get("saved_step"), report.get("out_step"), report.get("checkpoint"), report.get("outcome")));
      assertEquals(6, ((List<?>) report.get("losses")).size());
      assertEquals(report.get("best_loss"), ((Map<?, ?>) ((List<?>) report.get("evaluations")).get(2)).get("loss"));
      assertTrue(Json.object(run.evaluate()).containsKey("perplexity"));
      run.loadBest();
      assertEquals(Path.of(out + ".checkpoint"), Run.resumedFolder(out));
      Model.load(out).close();
      assertEquals(1 + 6 + 3 + 3 + 3 + 1, Files.readAllLines(Path.of(out + ".jsonl")).size());
    }
  }

  @Test
  @DisplayName("a run that is stopped leaves a checkpoint, from which another goes on to the same bits")
  void stopped() throws IOException {
    Path whole = Given.WORK.resolve("whole_run.tsr");
    try (Trainer trainer = trainer(); Run run = new Run(trainer, options(whole))) {
      run.finish();
      assertEquals("finished", run.outcome().orElseThrow());
    }
    Path out = Given.WORK.resolve("stopped.tsr");
    Map<String, Object> options = options(out);
    try (Trainer trainer = trainer()) {
      try (Run run = new Run(trainer, options)) {
        RunEvent first = run.next().orElseThrow();
        assertEquals("step 1", name(first));
        assertEquals(first.loss(), Json.object(first.details()).get("loss"));
        run.save();
        assertEquals(1L, Json.object(run.report()).get("saved_step"));
        run.stop();
        assertEquals(List.of("checkpoint 1"), run.stream().map(RunTest::name).toList());
        assertEquals("stopped at step 1", run.outcome().orElseThrow());
      }
      assertFalse(Files.exists(out));
      Given.refused(TesseraException.Exists.class, "step 1", () -> new Run(trainer, options));
    }
    options.put("resume", out);
    try (Trainer trainer = trainer(); Run run = new Run(trainer, options)) {
      assertEquals("step 2", name(run.next().orElseThrow()));
      Cancellation cancellation = new Cancellation();
      cancellation.cancel();
      Given.refused(TesseraException.Cancelled.class, "Cancellation", () -> cancellation.run(run::finish));
      assertEquals("stopped at step 2", run.outcome().orElseThrow());
    }
    try (Trainer trainer = trainer(); Run run = new Run(trainer, options)) {
      assertEquals("step 3", name(run.next().orElseThrow()));
      Thread.currentThread().interrupt();
      List<RunEvent> events = new java.util.ArrayList<>();
      Given.refused(TesseraException.Cancelled.class, "interrupted", () -> run.events().forEachRemaining(events::add));
      assertTrue(Thread.interrupted());
      assertEquals(List.of("checkpoint 3"), events.stream().map(RunTest::name).toList());
    }
    try (Trainer trainer = trainer(); Run run = new Run(trainer, options)) {
      run.finish();
      assertEquals(3, ((List<?>) Json.object(run.report()).get("losses")).size());
    }
    assertEquals(-1, Files.mismatch(whole, out));
  }

  @Test
  @DisplayName("runs that cannot be are refused")
  void refused() {
    try (Trainer trainer = trainer()) {
      for (Map<String, ?> options : List.of(Map.of("evaluate_every", 1), Map.of("patience", 2, "eval_every", 0),
          Map.of("merge", true, "out", "a.tsr"))) {
        Given.invalid("run: ", () -> new Run(trainer, options));
        Given.invalid("run: ", () -> Run.check(options, MODEL, null));
      }
      Given.refused(TesseraException.NotFound.class, "nowhere", () -> Run.check(Map.of("resume", "nowhere"), null, null));
      Given.refused(TesseraException.NotFound.class, "nowhere", () -> Run.resumedFolder(Path.of("nowhere")));
      Given.invalid("trainer is null", () -> new Run(null, null));
      Run run = new Run(trainer, Map.of("checkpoint_every", 0));
      try (run) {
        Given.refused(TesseraException.FailedPrecondition.class, "no checkpoints", run::save);
        Given.refused(TesseraException.FailedPrecondition.class, "goes on", run::loadBest);
        RunEvent warning = run.next().orElseThrow();
        assertEquals(RunEvent.Kind.WARNING, warning.kind());
        assertTrue(warning.details().contains("nothing of this run is kept"));
        run.finish();
        Given.refused(TesseraException.NotFound.class, "keep_best", run::loadBest);
      }
      run.stop();
      Given.invalid("the run is closed", run::next);
      Given.invalid("the run is closed", run::report);
    }
  }
}
