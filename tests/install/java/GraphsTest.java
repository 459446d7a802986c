import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.tessera.Cancellation;
import dev.tessera.DType;
import dev.tessera.Devices;
import dev.tessera.Graph;
import dev.tessera.Json;
import dev.tessera.Model;
import dev.tessera.Plan;
import dev.tessera.Program;
import dev.tessera.Runtime;
import dev.tessera.Session;
import dev.tessera.Tensor;
import dev.tessera.TesseraException;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;

final class GraphsTest {
  @Test
  @DisplayName("a graph is built, planned, and run on two devices")
  void run() throws Exception {
    try (Runtime runtime = Given.runtime(); Devices devices = new Devices(runtime, "cpu:2"); Graph graph = new Graph()) {
      assertEquals(2, devices.count());
      assertEquals("cpu:2", Json.object(devices.info()).get("text"));
      long batch = graph.symbol("B");
      assertTrue(batch < 0);
      graph.scope("layer");
      Graph.Value x = graph.input("x", DType.F32, batch, 2);
      Graph.Value w = graph.parameter("w", DType.F32, 2, 1);
      Graph.Value y = graph.node("matmul", x, w);
      graph.rename(y, "y");
      graph.output("out", y);
      graph.setTrainable(w, false);
      assertEquals(y, graph.find("y"));
      assertEquals(new Graph.Type(DType.F32, List.of(batch, 1L)), graph.type(y));
      try (Graph again = Graph.parse(graph.text())) {
        assertEquals(graph.text(), again.text());
      }
      Given.invalid("", () -> graph.node("matmul", w, w));
      Given.refused(TesseraException.NotFound.class, "matmul", () -> graph.node("matmull", x, w));
      Given.invalid("another graph", () -> new Graph().output("z", y));
      assertTrue(Json.object(graph.profile(Map.of("batch", 4))).containsKey("ops"));

      Path file = Given.WORK.resolve("plan.txt");
      try (Plan plan = Plan.forGraph(devices, graph, Map.of("batch", 2));
          Plan parsed = Plan.parse(devices, graph, plan.text());
          Program program = new Program(devices, List.of(new Program.Entry("go", graph, parsed),
              new Program.Entry("again", graph, plan)));
          Session session = new Session(program, Map.of("trace", 1));
          Tensor points = Tensor.of(new float[] {1, 2, 3, 4}, 2, 2);
          Tensor weights = Tensor.of(new float[] {10, 1}, 2, 1)) {
        plan.save(file);
        Plan.load(devices, graph, file).close();
        assertTrue(plan.page().contains("<html"));
        assertTrue(Json.object(plan.explain()).containsKey("time"));
        assertTrue(program.info().contains("fingerprint"));
        assertTrue(program.print(0).length() > 0);
        session.write("w", weights);
        session.feed("go", "x", points);
        Given.refused(TesseraException.FailedPrecondition.class, "", () -> session.fetch("go", "out"));
        session.run("go");
        try (Tensor out = session.fetch("go", "out"); Tensor back = session.read("w")) {
          assertArrayEquals(new float[] {12, 34}, out.floats());
          assertArrayEquals(new float[] {10, 1}, back.floats());
        }
        assertTrue(session.report().contains("devices"));
        assertTrue(session.trace().startsWith("["));
        Cancellation cancellation = new Cancellation();
        cancellation.cancel();
        Given.refused(TesseraException.Cancelled.class, "", () -> cancellation.run(() -> session.run("go")));
        session.run("go");
        session.cancel();
      }
      Given.invalid("entry 0 has a null", () -> new Program(devices, List.of(new Program.Entry("go", graph, null))));
    }
  }

  @Test
  @DisplayName("graphs are derived, and plans made for clusters that are absent")
  void derived() {
    try (Model model = Model.create("llama:L=1,C=32,H=4,F=64,V=64,T=32", Map.of("seed", 3));
        Graph graph = model.graph();
        Graph loss = graph.tokenLoss();
        Graph training = loss.training(Map.of("optimizer", "sgd"));
        Graph evaluation = loss.evaluation();
        Graph decoding = graph.decoding(Map.of("context", 32))) {
      for (Graph each : List.of(loss, training, evaluation, decoding)) {
        assertTrue(each.text().startsWith("graph"), each::text);
      }
      Given.refused(TesseraException.class, "", () -> graph.evaluation());
      String estimate = Plan.estimate("gpt2:L=2,C=256,H=4,V=1000,T=128", Map.of("cluster", "dgx-a100-80gb:8", "certificate", 1));
      assertTrue(Json.object(estimate).containsKey("predicted_step_seconds"));
      assertEquals(true, Json.object(Plan.check(Json.write(Json.object(estimate).get("certificate")))).get("valid"));
      assertTrue(Plan.estimatePage("gpt2:L=2,C=256,H=4,V=1000,T=128", Map.of("cluster", "dgx-a100-80gb:8")).contains("<html"));
    }
  }
}
