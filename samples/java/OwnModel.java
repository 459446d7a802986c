import dev.tessera.DType;
import dev.tessera.Graph;
import dev.tessera.Graph.Value;
import dev.tessera.Model;
import dev.tessera.Runtime;
import dev.tessera.Tensor;
import dev.tessera.TesseraException;
import dev.tessera.Trainer;
import java.nio.FloatBuffer;
import java.util.List;
import java.util.Locale;
import java.util.Map;

/**
 * A model of one's own: a small network built node by node, trained on two devices to tell the quadrants of a plane apart
 * (sign of x * y), which no linear model can; the twin of samples/c/own_model.c.
 *
 * <pre>OwnModel [DEVICES]</pre>
 */
public final class OwnModel {
  private static final int BATCH = 64;
  private static final int HIDDEN = 32;
  private static final int STEPS = 300;

  private static int state = 1;

  public static void main(String[] args) {
    try {
      System.exit(run(args.length > 0 ? args[0] : "cpu:2") ? 0 : 1);
    } catch (TesseraException e) {
      System.err.println(e.code().text() + ": " + e.getMessage());
      System.exit(1);
    }
  }

  /** loss = loss_scale * sum over the batch of (w2 tanh(w1 x + b1) - y)^2; B, the batch, is bound when training. */
  private static Graph build() {
    Graph graph = new Graph();
    long batch = graph.symbol("B");
    Value x = graph.input("x", DType.F32, batch, 2);
    Value y = graph.input("y", DType.F32, batch, 1);
    Value scale = graph.input("loss_scale", DType.F32); // the trainer feeds 1 / batch
    Value w1 = graph.parameter("w1", DType.F32, 2, HIDDEN);
    Value b1 = graph.parameter("b1", DType.F32, HIDDEN);
    Value w2 = graph.parameter("w2", DType.F32, HIDDEN, 1);

    Value hidden = graph.node("tanh", graph.node("add_bias", graph.node("matmul", x, w1), b1));
    Value out = graph.node("matmul", hidden, w2);
    Value square = graph.node("square", graph.node("sub", out, y));
    Value sum = graph.node("reduce_sum", List.of(square), Map.of("axes", List.of(0, 1)));
    graph.output("out", out);
    graph.output("loss", graph.node("scale_by", sum, scale));
    return graph;
  }

  /** Points of the square [-1, 1)^2, the same on every machine. */
  private static float nextCoordinate() {
    state = state * 1664525 + 1013904223;
    return (float) (state >>> 8) / (1 << 23) - 1;
  }

  private static boolean run(String devices) {
    try (Graph graph = build();
        Runtime runtime = new Runtime();
        Model model = Model.of(graph, null);
        Trainer trainer = new Trainer(runtime, model, null, Map.of("devices", devices, "batch", BATCH, "lr", 0.02));
        Tensor x = new Tensor(DType.F32, BATCH, 2);
        Tensor y = new Tensor(DType.F32, BATCH, 1)) {
      FloatBuffer points = x.writable().asFloatBuffer();
      FloatBuffer signs = y.writable().asFloatBuffer();
      double first = 0;
      double last = 0;
      for (int i = 0; i < STEPS; ++i) {
        for (int row = 0; row < BATCH; ++row) {
          points.put(2 * row, nextCoordinate()).put(2 * row + 1, nextCoordinate());
          signs.put(row, points.get(2 * row) * points.get(2 * row + 1) > 0 ? 1 : -1);
        }
        trainer.feed("x", x);
        trainer.feed("y", y);
        last = trainer.step().loss();
        first = i == 0 ? last : first;
        if (i % 50 == 0) {
          System.out.println(String.format(Locale.ROOT, "step %d loss %.4f", i + 1, last));
        }
      }
      System.out.println(String.format(Locale.ROOT, "loss from %.4f to %.4f", first, last));
      trainer.store(model); // model now holds the trained w1, b1, w2
      return last < first / 2;
    }
  }
}
