import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.tessera.AdapterTrainer;
import dev.tessera.Cancellation;
import dev.tessera.DType;
import dev.tessera.Dataset;
import dev.tessera.Engine;
import dev.tessera.Generator;
import dev.tessera.Json;
import dev.tessera.Model;
import dev.tessera.Piece;
import dev.tessera.Plan;
import dev.tessera.RunLog;
import dev.tessera.Runtime;
import dev.tessera.Saving;
import dev.tessera.Tensor;
import dev.tessera.TesseraException;
import dev.tessera.Tokenizer;
import dev.tessera.Trainer;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;

final class TrainingTest {
  private static final Runtime RUNTIME = Given.runtime();

  @AfterAll
  static void close() {
    RUNTIME.close();
  }

  @Test
  @DisplayName("a training is saved, resumed, and stored to the bit")
  void checkpoints() throws IOException {
    Path folder = Given.WORK.resolve("checkpoint");
    Map<String, ?> options = Map.of("devices", "cpu:2", "batch", 2, "steps", 6, "trace", true);
    try (Model model = Given.model();
        Trainer trainer = Given.trainer(RUNTIME, model, options);
        Trainer other = Given.trainer(RUNTIME, model, options);
        Plan plan = trainer.plan()) {
      Trainer.checkFolder(folder);
      for (int i = 1; i <= 3; ++i) {
        Trainer.Step step = trainer.step();
        assertEquals(i, step.step());
        assertTrue(step.loss() > 0 && step.gradNorm() > 0 && step.learningRate() > 0 && step.seconds() > 0);
      }
      assertTrue(trainer.trace().startsWith("["));
      assertEquals(Json.object(plan.info()).get("strategy"),
          ((Map<?, ?>) Json.object(trainer.report()).get("plan")).get("strategy"));
      trainer.save(folder);
      other.resume(folder);
      assertEquals(3L, Json.object(Trainer.checkpointInfo(folder)).get("step"));
      Path noted = Given.WORK.resolve("noted");
      try (Saving saving = trainer.startSave(noted, Map.of("best_loss", 2.5, "best_step", 3))) {
        saving.finish(null);
      }
      assertEquals(Map.of("best_loss", "2.5", "best_step", "3"), Json.object(Trainer.checkpointInfo(noted)).get("notes"));
      assertEquals(trainer.step().loss(), other.step().loss());
      String name = model.parameters().get(0);
      try (Tensor mine = trainer.read(name); Tensor its = other.read(name)) {
        assertArrayEquals(mine.floats(), its.floats());
        other.write(name, mine);
      }
      Path whole = Given.WORK.resolve("whole.tsr");
      Path stored = Given.WORK.resolve("stored.tsr");
      trainer.saveModel(model, whole, null);
      trainer.store(model);
      model.save(stored);
      assertEquals(-1, Files.mismatch(whole, stored));
      Given.refused(TesseraException.class, "", () -> trainer.resume(Given.WORK.resolve("nowhere")));
      trainer.saveState(folder, Map.of("optimizer", 0));
      other.loadState(folder, Map.of("optimizer", 0));
      assertEquals(1, other.step().step());
      Given.invalid("optimizer", () -> other.loadState(folder, null));
    }
  }

  @Test
  @DisplayName("texts of the weights being trained are those of the model that they were stored in")
  void trainedTexts() {
    Map<String, ?> likeliest = Map.of("max_tokens", 5, "temperature", 0.0);
    Map<String, ?> small = Map.of("context", 32, "sequences", 2);
    try (Model model = Given.model();
        Trainer trainer = Given.trainer(RUNTIME, model, Map.of("batch", 2, "lr", 1e-2));
        Engine engine = new Engine(trainer, small);
        Generator generator = new Generator(trainer, Map.of("context", 32))) {
      for (int i = 0; i < 3; ++i) {
        trainer.step();
      }
      trainer.store(model);
      try (Engine stored = new Engine(RUNTIME, model, small)) {
        List<String> wanted = stored.generate(List.of("A"), likeliest);
        assertEquals(wanted, engine.generate(List.of("A"), likeliest));
        assertEquals(wanted.get(0), generator.stream("A", likeliest).map(Piece::text).collect(Collectors.joining()));
      }
      Given.invalid("devices", () -> new Engine(trainer, Map.of("devices", "cpu:1")));
      Given.invalid("precision", () -> new Generator(trainer, Map.of("precision", "bf16")));
    }
  }

  @Test
  @DisplayName("a run log has every step, and says how the run ended")
  void runLog() throws IOException {
    Path metrics = Given.WORK.resolve("run.jsonl");
    Path report = Given.WORK.resolve("run.html");
    try (Model model = Given.model();
        Trainer trainer = Given.trainer(RUNTIME, model, Map.of("batch", 2, "steps", 6));
        RunLog log = new RunLog(trainer, Map.of("metrics", metrics, "report", report, "tensorboard", Given.WORK.resolve("events")))) {
      Given.refused(TesseraException.FailedPrecondition.class, "no step", log::step);
      double loss = trainer.step().loss();
      log.step();
      log.evaluation(2);
      log.evaluation(1, 0.5);
      log.value("margin", Double.NaN);
      log.sample("Once", " upon a \0time");
      log.checkpoint(Given.WORK);
      Map<?, ?> summary = Json.object(log.summary());
      assertEquals(loss, summary.get("loss"));
      assertEquals(1.0, summary.get("best_eval_loss"));
      log.finish("enough");
      Given.refused(TesseraException.FailedPrecondition.class, "finished already", log::finish);
      assertEquals(8, Files.readAllLines(metrics).size());
      assertTrue(Files.readString(report).contains("\"state\":\"enough\""));
      Given.refused(TesseraException.Exists.class, "no file of metrics",
          () -> new RunLog(trainer, Map.of("metrics", report)));
    }
  }

  @Test
  @DisplayName("a training on preferences says its rewards, and hears progress")
  void preferences() {
    String rows = "{\"prompt\": \"ab\", \"chosen\": \"cde\", \"rejected\": \"f\"}\n"
        + "{\"prompt\": \"x\", \"chosen\": \"y\", \"rejected\": \"zz\"}\n";
    double[] share = new double[1];
    try (Model model = Given.model();
        Tokenizer tokenizer = model.tokenizer();
        Dataset data = Dataset.ofText(rows, tokenizer, Map.of("kind", "preference", "seq", 16));
        Trainer trainer = new Trainer(RUNTIME, model, data,
            Map.of("loss", "dpo", "batch", 2, "lr", 0.01, "warmup", 0), done -> share[0] = done)) {
      assertEquals(1, share[0]);
      assertEquals(Math.log(2), trainer.step().loss(), 1e-4);
      Trainer.Step step = trainer.step();
      assertTrue(step.rewardMargin() > 0 && step.rewardAccuracy() > 0);
      assertEquals(step.chosenReward() - step.rejectedReward(), step.rewardMargin(), 1e-9);
      Given.refused(TesseraException.class, "kind unpaired",
          () -> new Trainer(RUNTIME, model, data, Map.of("loss", "kto")).close());
    }
  }

  @Test
  @DisplayName("steps are cancelled by a Cancellation and by an interrupt")
  void cancelled() throws Exception {
    try (Model model = Given.model()) {
      for (boolean interrupt : new boolean[] {false, true}) {
        try (Trainer trainer = Given.trainer(RUNTIME, model, Map.of("batch", 8, "watchdog", 30))) {
          Cancellation cancellation = new Cancellation();
          Thread self = Thread.currentThread();
          Given.daemon(() -> {
            try {
              Thread.sleep(50);
            } catch (InterruptedException e) {
              return;
            }
            if (interrupt) {
              self.interrupt();
            } else {
              cancellation.cancel();
            }
          });
          Given.refused(TesseraException.Cancelled.class, "", () -> cancellation.call(() -> {
            for (;;) {
              trainer.step();
            }
          }));
          assertEquals(interrupt, Thread.interrupted());
          assertEquals(!interrupt, cancellation.isCancelled());
        }
      }
      Cancellation cancelled = new Cancellation();
      cancelled.cancel();
      Given.refused(TesseraException.Cancelled.class, "",
          () -> cancelled.run(() -> Given.trainer(RUNTIME, model, Map.of("batch", 2))));
      try (Trainer trainer = Given.trainer(RUNTIME, model, Map.of("batch", 2))) {
        assertEquals(1, trainer.step().step());
        Given.refused(TesseraException.OutOfMemory.class, "",
            () -> Given.trainer(RUNTIME, model, Map.of("batch", 2, "memory_limit", "1KiB")));
      }
    }
  }

  @Test
  @DisplayName("adapters train alone, merge, and datasets are made of ids")
  void adapters() {
    int[] ids = new int[2000];
    for (int i = 0; i < ids.length; ++i) {
      ids[i] = i * i % 251;
    }
    try (Model model = Given.model();
        Model adapted = model.withAdapters(Map.of("rank", 2));
        Dataset dataset = Dataset.ofTokens(ids, Map.of("seq", 16, "eval_fraction", 0.2));
        Trainer trainer = new Trainer(RUNTIME, adapted, dataset, Map.of("batch", 4, "lr", 1e-2))) {
      double before = trainer.evaluate();
      for (int i = 0; i < 5; ++i) {
        trainer.step();
      }
      assertTrue(trainer.evaluate() < before);
      trainer.store(adapted);
      Path peft = Given.WORK.resolve("adapter");
      dev.tessera.ModelFiles.export(adapted, peft, Map.of("format", "peft"), null);
      String weight = adapted.parameters().stream().filter(name -> name.endsWith("lora_a")).findFirst().orElseThrow();
      try (Model merged = adapted.mergeAdapters(); Model loaded = model.loadAdapters(peft);
          Tensor mine = adapted.read(weight); Tensor its = loaded.read(weight)) {
        assertEquals(model.parameters(), merged.parameters());
        assertEquals(DType.F32, its.dtype());
        assertArrayEquals(mine.floats(), its.floats());
      }
      String methods = Plan.methods(RUNTIME, model, dataset, Map.of("batch", 4), Map.of("rank", 2));
      assertTrue(methods.startsWith("{\"method\":\"full\","), methods);
      try (Model narrow = model.forMethod("qlora:q8_0", Map.of("rank", 2, "init", "pissa"))) {
        assertTrue(narrow.parameters().contains(weight));
      }
    }
  }

  @Test
  @DisplayName("adapters train side by side")
  void adaptersSideBySide() throws IOException {
    int[] tokens = {0, 1, 2, 3, 4, 5, 6, 7}, labels = {1, 2, 3, 4, 5, 6, 7, -1};
    Trainer.Batch batch = new Trainer.Batch(8, tokens, labels);
    Map<String, ?> options = Map.of("devices", "cpu:1", "batch", 2, "seq", 8, "adapters", 2, "losses", "cross_entropy,gradient");
    try (Runtime runtime = Given.runtime(); Model model = Given.model();
        AdapterTrainer trainer = new AdapterTrainer(runtime, model, options)) {
      long first = trainer.add(Map.of("rank", 2, "seed", 1)), second = trainer.add(Map.of("rank", 4, "seed", 1));
      Given.refused(TesseraException.Busy.class, "2 slots", () -> trainer.add(null));
      for (long adapter : new long[] {first, second}) {
        trainer.forwardBackward(adapter, batch, "cross_entropy", Map.of("scale", 0.1));
        trainer.update(adapter, Map.of("lr", 0.01));
      }
      int updates = 0;
      for (AdapterTrainer.Result done = trainer.next(); done != null; done = trainer.next()) {
        assertFalse(done.json().contains("error"), done.json());
        assertEquals(done.json().contains("\"update\"") ? 0 : 8, done.logprobs().length);
        updates += done.logprobs().length == 0 ? 1 : 0;
      }
      assertEquals(2, updates);
      Path folder = Given.WORK.resolve("side_by_side");
      trainer.save(first, folder);
      trainer.drop(second);
      long bare = trainer.load(folder, Map.of("optimizer", 0));
      assertTrue(trainer.report().split("\"trainer\"")[0].contains("\"step\":0"), trainer.report());
      trainer.drop(bare);
      long again = trainer.load(folder, null);
      trainer.backward(again, batch, new float[8]);
      trainer.cancelPass(trainer.forward(again, batch));
      assertEquals(8, trainer.next().logprobs().length);
      trainer.model(again).close();
      assertTrue(trainer.report().contains("\"slots\":2"));
      trainer.cancel();
    }
  }
}
