import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.tessera.Calibration;
import dev.tessera.Cancellation;
import dev.tessera.Embedder;
import dev.tessera.Json;
import dev.tessera.Model;
import dev.tessera.ModelFiles;
import dev.tessera.Runtime;
import dev.tessera.Scorer;
import dev.tessera.TesseraException;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;

final class WorkTest {
  @Test
  @DisplayName("long work tells how far it is, and is ended by a Cancellation or what its progress throws")
  void progress() throws IOException {
    Path out = Given.WORK.resolve("converted.tsr");
    List<Double> heard = new ArrayList<>();
    ModelFiles.checkPath(out);
    String report = ModelFiles.convert(Given.MODEL, out, null, heard::add);
    assertTrue(Json.object(report).containsKey("parameters"));
    assertEquals(1.0, heard.get(heard.size() - 1));
    assertEquals(-1, Files.mismatch(Given.MODEL, out));
    ModelFiles.verify(out);

    Path none = Given.WORK.resolve("none.tsr");
    IllegalStateException mine = new IllegalStateException("mine");
    assertSame(mine, assertThrows(IllegalStateException.class, () -> ModelFiles.convert(Given.MODEL, none, null, done -> {
      throw mine;
    })));
    Cancellation cancellation = new Cancellation();
    Given.refused(TesseraException.Cancelled.class, "",
        () -> cancellation.run(() -> ModelFiles.convert(Given.MODEL, none, null, done -> cancellation.cancel())));
    assertFalse(Files.exists(none));
    Thread.currentThread().interrupt();
    Given.refused(TesseraException.Cancelled.class, "interrupted", () -> Model.load(Given.MODEL, null, null));
    assertTrue(Thread.interrupted());
    heard.clear();
    Model.load(Given.MODEL, Map.of("verify", true), heard::add).close();
    assertEquals(1.0, heard.get(heard.size() - 1));
  }

  @Test
  @DisplayName("models are exported, quantised, and measured for that")
  void exported() {
    Path folder = Given.WORK.resolve("exported");
    try (Runtime runtime = Given.runtime(); Model model = Given.model()) {
      assertTrue(ModelFiles.export(Given.MODEL, folder, null, null).contains("hf"));
      Model.load(folder).close();
      ModelFiles.export(model, Given.WORK.resolve("exported.gguf"), Map.of("format", "gguf"), null);
      int[] ids = new int[200];
      Path imatrix = Given.WORK.resolve("imatrix.gguf");
      assertTrue(ModelFiles.writeImatrix(runtime, model, ids, imatrix, Map.of("seq", 32), null).contains("windows"));
      String report = model.quantize(runtime, Given.WORK.resolve("small.tsr"), Map.of("type", "q8_0", "imatrix", imatrix));
      assertTrue(report.contains("q8_0"));
      model.quantize(null, Given.WORK.resolve("small.tsr"), Map.of("type", "q4_0"));
      assertTrue(model.info().contains("parameter_bytes"));
    }
  }

  @Test
  @DisplayName("texts have the same scores and vectors in any batch")
  void rows() {
    List<int[]> texts = List.of(new int[] {1, 2, 3, 4}, new int[] {5, 6}, new int[] {7});
    try (Runtime runtime = Given.runtime(); Model model = Given.model();
        Scorer scorer = new Scorer(runtime, model, Map.of("batch", 2));
        Embedder embedder = new Embedder(runtime, model, Map.of("batch", 2))) {
      List<Double> heard = new ArrayList<>();
      List<Scorer.Scores> all = scorer.score(texts, heard::add);
      List<Scorer.Scores> once = scorer.score(texts);
      List<Scorer.Scores> alone = Scorer.score(runtime, model, null, texts);
      for (int i = 0; i < texts.size(); ++i) {
        assertEquals(texts.get(i).length, all.get(i).greedy().length);
        assertTrue(Float.isNaN(all.get(i).logProbs()[0]));
        assertArrayEquals(all.get(i).logProbs(), once.get(i).logProbs());
        assertArrayEquals(all.get(i).logProbs(), alone.get(i).logProbs());
        assertArrayEquals(all.get(i).greedy(), scorer.score(List.of(texts.get(i))).get(0).greedy());
      }
      assertEquals(1.0, heard.get(heard.size() - 1));
      assertTrue(scorer.report().contains("scored_tokens"));
      scorer.cancel();
      Given.invalid("number 1 is null", () -> scorer.score(Arrays.asList(new int[] {1}, null)));
      Given.invalid("found 3000000000 in all", () -> scorer.score(java.util.Collections.nCopies(3000, new int[1000000])));

      List<float[]> vectors = embedder.embed(List.of("ab", "cde", "f"));
      List<float[]> pieces = embedder.embed(List.of("ab", "cde", "f"), heard::add);
      List<float[]> tokens = embedder.embedTokens(List.of(new int[] {'c', 'd', 'e'}), null);
      assertEquals(3, vectors.size());
      assertEquals(embedder.width(), vectors.get(0).length);
      for (int i = 0; i < 3; ++i) {
        assertArrayEquals(vectors.get(i), pieces.get(i));
      }
      assertArrayEquals(vectors.get(1), tokens.get(0));
      assertEquals(List.of(), embedder.labels());
      embedder.cancel();
    }
  }

  @Test
  @DisplayName("runtimes tell their backends and log; a calibration is cancelled")
  void runtimes() {
    try (Runtime runtime = new Runtime(Map.of("log_level", "debug", "threads", 1))) {
      assertTrue(runtime.backends().contains("\"cpu\""));
      runtime.cancel();
      while (runtime.nextLog().isPresent()) {
        assertTrue(true);
      }
      Given.invalid("log_level", () -> new Runtime(Map.of("log_level", "loud")));
      Cancellation cancellation = new Cancellation();
      Given.refused(TesseraException.Cancelled.class, "", () -> cancellation.run(
          () -> new Calibration(runtime, Map.of("seconds", 1.0), done -> cancellation.cancel())));
    }
  }
}
