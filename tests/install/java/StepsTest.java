import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.tessera.Cancellation;
import dev.tessera.DType;
import dev.tessera.Dataset;
import dev.tessera.Devices;
import dev.tessera.Graph;
import dev.tessera.Json;
import dev.tessera.Model;
import dev.tessera.ModelFiles;
import dev.tessera.Plan;
import dev.tessera.Runtime;
import dev.tessera.TesseraException;
import dev.tessera.Tokenizer;
import dev.tessera.Trainer;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.OptionalLong;
import java.util.function.Consumer;
import java.util.function.DoubleConsumer;
import java.util.stream.Stream;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;

final class StepsTest {
  /** What fits into so little is searched for longer than one step takes. */
  private static final Map<String, ?> TOO_LITTLE = Map.of("devices", "cpu:2", "memory_limit", "64KiB");

  /** What work with a progress tells: it rises, and ends with 1. */
  private static void rises(Consumer<DoubleConsumer> work) {
    List<Double> heard = new ArrayList<>();
    work.accept(heard::add);
    assertFalse(heard.isEmpty());
    assertEquals(heard.stream().sorted().toList(), heard);
    assertEquals(1.0, heard.get(heard.size() - 1));
    assertTrue(heard.get(0) >= 0);
  }

  /** Work whose progress throws ends with just that, and under an interrupt with Cancelled. */
  private static void ends(Consumer<DoubleConsumer> work) {
    IllegalStateException mine = new IllegalStateException("mine");
    assertSame(mine, assertThrows(IllegalStateException.class, () -> work.accept(done -> {
      throw mine;
    })));
    Thread.currentThread().interrupt();
    Given.refused(TesseraException.Cancelled.class, "interrupted", () -> work.accept(null));
    assertTrue(Thread.interrupted());
  }

  private static List<String> files(Path folder) throws IOException {
    try (Stream<Path> files = Files.list(folder)) {
      return files.map(file -> file.getFileName().toString()).sorted().toList();
    }
  }

  @Test
  @DisplayName("texts are read in steps")
  void reading() throws IOException {
    Map<String, ?> options = Map.of("seq", 16);
    String text = Files.readString(Given.TEXT, java.nio.charset.StandardCharsets.ISO_8859_1);
    try (Tokenizer tokenizer = Tokenizer.bytes()) {
      ends(progress -> Dataset.open(Given.TEXT, tokenizer, options, progress).close());
      ends(progress -> Dataset.ofText(text, tokenizer, options, progress).close());
      rises(progress -> {
        try (Dataset steps = Dataset.open(Given.TEXT, tokenizer, options, progress);
            Dataset once = Dataset.open(Given.TEXT, tokenizer, options)) {
          assertEquals(once.info(), steps.info());
        }
      });
      rises(progress -> {
        try (Dataset steps = Dataset.ofText(text, tokenizer, options, progress);
            Dataset once = Dataset.ofText(text, tokenizer, options)) {
          assertEquals(once.info(), steps.info());
        }
      });
      Given.refused(TesseraException.NotFound.class, "nowhere",
          () -> Dataset.open(Path.of("nowhere.txt"), tokenizer, options, null));
      Given.invalid("seq", () -> Dataset.ofText(text, tokenizer, Map.of("seq", -1), null));
      Given.invalid("tokenizer is null", () -> Dataset.open(Given.TEXT, null, options, null));
    }
  }

  @Test
  @DisplayName("plans are made in steps, and one that fits nowhere says its numbers")
  void planning() {
    try (Runtime runtime = Given.runtime(); Model model = Given.model(); Devices devices = new Devices(runtime, "cpu:2");
        Graph graph = new Graph()) {
      rises(progress -> {
        try (Plan steps = new Plan(runtime, model, Map.of("devices", "cpu:2"), progress);
            Plan once = new Plan(runtime, model, Map.of("devices", "cpu:2"))) {
          assertEquals(once.text(), steps.text());
        }
      });
      graph.output("y", graph.node("tanh", graph.input("x", DType.F32, graph.symbol("B"), 4)));
      rises(progress -> {
        try (Plan steps = Plan.forGraph(devices, graph, Map.of("batch", 2), progress);
            Plan once = Plan.forGraph(devices, graph, Map.of("batch", 2))) {
          assertEquals(once.text(), steps.text());
        }
      });
      ends(progress -> Plan.forGraph(devices, graph, null, progress));
      ends(progress -> new Plan(runtime, model, TOO_LITTLE, progress));
      Cancellation cancellation = new Cancellation();
      Given.refused(TesseraException.Cancelled.class, "Cancellation.cancel",
          () -> cancellation.run(() -> new Plan(runtime, model, TOO_LITTLE, done -> cancellation.cancel())));

      for (boolean steps : new boolean[] {true, false}) {
        Map<String, ?> options = Map.of("memory_limit", "1KiB", "batch", 1, "seq", 8);
        TesseraException.OutOfMemory none = Given.refused(TesseraException.OutOfMemory.class, "smallest limit",
            () -> (steps ? new Plan(runtime, model, options, null) : new Plan(runtime, model, options)).close());
        assertEquals(OptionalLong.of(1024), none.number("limit_bytes"));
        long smallest = none.numbers().get("smallest_limit_bytes");
        assertTrue(smallest > 1024 && none.getMessage().contains("(" + smallest + " bytes)"));
        assertEquals(OptionalLong.empty(), none.number("bytes"));
        assertThrows(UnsupportedOperationException.class, () -> none.numbers().clear());
        // The number is one to go on with.
        new Plan(runtime, model, Map.of("memory_limit", String.valueOf(smallest), "batch", 1, "seq", 8)).close();
      }
      assertEquals(Map.of(), assertThrows(TesseraException.class, () -> Model.load(Path.of("nowhere"))).numbers());
    }
  }

  @Test
  @DisplayName("models are written in steps, the same bytes as at once")
  void models() throws IOException {
    Path folder = Files.createDirectories(Given.WORK.resolve("steps"));
    Path once = Given.WORK.resolve("once.tsr");
    Path steps = folder.resolve("steps.tsr");
    try (Model model = Given.model()) {
      ends(progress -> model.save(steps, null, progress));
      Cancellation cancellation = new Cancellation();
      Given.refused(TesseraException.Cancelled.class, "",
          () -> cancellation.run(() -> model.save(steps, null, done -> cancellation.cancel())));
      assertEquals(List.of(), files(folder));
      model.save(once, Map.of("compress", true));
      rises(progress -> model.save(steps, Map.of("compress", true), progress));
      assertEquals(-1, Files.mismatch(once, steps));
      model.quantize(null, once, Map.of("type", "q8_0"));
      ends(progress -> ModelFiles.convert(model, steps, Map.of("type", "q8_0"), progress));
      String report = ModelFiles.convert(model, steps, Map.of("type", "q8_0"), null);
      assertTrue(Json.object(report).containsKey("quantization"));
      assertEquals(-1, Files.mismatch(once, steps));
      assertEquals(List.of("steps.tsr"), files(folder));
      Given.invalid("path is null", () -> model.save(null, null, null));
      Given.invalid("model is null", () -> ModelFiles.convert((Model) null, steps, null, null));
    }
  }

  @Test
  @DisplayName("trainers are saved in steps, between which nobody else uses them")
  void trainers() throws IOException {
    Path folder = Files.createDirectories(Given.WORK.resolve("trainers"));
    Path checkpoint = folder.resolve("checkpoint");
    Path once = Given.WORK.resolve("trained.tsr");
    Path steps = folder.resolve("trained.tsr");
    Map<String, ?> options = Map.of("devices", "cpu:2", "batch", 2);
    try (Runtime runtime = Given.runtime(); Model model = Given.model();
        Trainer trainer = Given.trainer(runtime, model, options);
        Trainer other = Given.trainer(runtime, model, options)) {
      trainer.step();
      ends(progress -> trainer.saveModel(model, steps, null, progress));
      Thread.currentThread().interrupt();
      Given.refused(TesseraException.Cancelled.class, "", () -> trainer.save(checkpoint, null));
      assertTrue(Thread.interrupted());
      assertEquals(List.of(), files(folder));
      trainer.saveModel(model, once, null);
      rises(progress -> trainer.saveModel(model, steps, null, progress));
      assertEquals(-1, Files.mismatch(once, steps));
      Given.refused(TesseraException.Busy.class, "tsr_conversion_begin_for_trainer",
          () -> trainer.saveModel(model, steps, null, done -> trainer.report()));
      Given.refused(TesseraException.Cancelled.class, "",
          () -> trainer.saveModel(model, steps, null, done -> trainer.cancel()));
      assertEquals(-1, Files.mismatch(once, steps));

      // What ends a save early leaves nothing, or where that came too late all.
      assertThrows(IllegalStateException.class, () -> trainer.save(checkpoint, done -> {
        throw new IllegalStateException("mine");
      }));
      if (Files.exists(checkpoint)) {
        assertTrue(Trainer.checkpointInfo(checkpoint).contains("\"step\":1"));
      }
      trainer.step();
      rises(progress -> trainer.save(checkpoint, progress));
      assertEquals(List.of("checkpoint", "trained.tsr"), files(folder));
      other.resume(checkpoint);
      assertEquals(trainer.step().loss(), other.step().loss());
      Given.invalid("folder is null", () -> trainer.save(null, null));
    }
  }
}
