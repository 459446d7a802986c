import dev.tessera.Cancellation;
import dev.tessera.DType;
import dev.tessera.Dataset;
import dev.tessera.Embedder;
import dev.tessera.Engine;
import dev.tessera.Generator;
import dev.tessera.Graph;
import dev.tessera.Hooks;
import dev.tessera.Model;
import dev.tessera.ModelSource;
import dev.tessera.Plan;
import dev.tessera.Request;
import dev.tessera.Runtime;
import dev.tessera.Scorer;
import dev.tessera.Sequence;
import dev.tessera.Tensor;
import dev.tessera.TesseraException;
import dev.tessera.Tokenizer;
import dev.tessera.Trainer;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.atomic.AtomicReference;

/**
 * Many handles, made and freed in any order, by close and by the collector, and trainings that other threads cancel:
 * resident memory stays as it was.
 *
 * <pre>Cycles MODEL TEXT CYCLES TRAININGS</pre>
 */
public final class Cycles {
  private static final Random RANDOM = new Random(1);

  private final Path model;
  private final Path text;

  private Cycles(Path model, Path text) {
    this.model = model;
    this.text = text;
  }

  private interface Body {
    void run() throws Exception;
  }

  public static void main(String[] args) throws Exception {
    Cycles cycles = new Cycles(Path.of(args[0]), Path.of(args[1]));
    int count = Integer.parseInt(args[2]);
    cancels(count / 50);
    steady("light handles", count, cycles::light);
    steady("heavy handles", count / 20, cycles::heavy);
    steady("trainings", Integer.parseInt(args[3]), cycles::training);
  }

  /** Plans that would take long, cancelled at any moment: before they begin, as they begin, and later. */
  private static void cancels(int count) throws Exception {
    double worst = 0;
    try (Runtime runtime = new Runtime();
        Model large = Model.create("llama:L=32,C=4096,H=32,KV=8,F=11008,V=32000,T=4096", null)) {
      for (int i = 0; i < count; ++i) {
        Cancellation cancellation = new Cancellation();
        Thread planning = Thread.currentThread();
        boolean interrupts = i % 2 == 0;
        int wait = RANDOM.nextInt(200_000);
        Thread canceller = new Thread(() -> {
          for (long begin = System.nanoTime(); System.nanoTime() - begin < wait;) {
            Thread.onSpinWait();
          }
          if (interrupts) {
            planning.interrupt();
          } else {
            cancellation.cancel();
          }
        });
        canceller.start();
        long begin = System.nanoTime();
        try {
          Map<String, ?> options = Map.of("devices", "cpu:16", "batch", 64);
          boolean steps = i % 4 < 2;
          cancellation.call(() -> steps ? new Plan(runtime, large, options, null) : new Plan(runtime, large, options));
          System.out.println("FAILED: Java: planning was not cancelled");
          System.exit(1);
        } catch (TesseraException.Cancelled e) {
          worst = Math.max(worst, (System.nanoTime() - begin) * 1e-9);
        }
        Thread.interrupted();
        canceller.join();
      }
    }
    System.out.printf("ok: Java: %d times planning is cancelled, at any moment; the longest took %.3f s%n", count, worst);
  }

  /** Runs a body twice as often as asked, until all of Java has grown, and as often again: that must not take memory. */
  private static void steady(String what, int count, Body body) throws Exception {
    final long allowed = 8L << 20;
    for (int i = 0; i < 2 * count; ++i) {
      body.run();
    }
    long before = resident();
    for (int i = 0; i < count; ++i) {
      body.run();
    }
    long after = resident();
    if (after - before > allowed) {
      System.out.printf("FAILED: Java: %d times %s: %d bytes resident, wanted at most %d + %d%n", count, what, after, before, allowed);
      System.exit(1);
    }
    System.out.printf("ok: Java: %d times %s: %d KiB resident after twice as many before, %d KiB now%n", count, what, before >> 10, after >> 10);
  }

  private static long resident() throws Exception {
    for (int i = 0; i < 10; ++i) {
      System.gc();
      Thread.sleep(50);
    }
    return 4096 * Long.parseLong(Files.readString(Path.of("/proc/self/statm")).split(" ")[1]);
  }

  /** Closes most handles, in any order, and leaves the others to the collector. */
  private static void free(List<AutoCloseable> handles) throws Exception {
    Collections.shuffle(handles, RANDOM);
    for (AutoCloseable handle : handles) {
      if (RANDOM.nextInt(4) != 0) {
        handle.close();
      }
    }
  }

  private void light() throws Exception {
    List<AutoCloseable> made = new ArrayList<>();
    Tokenizer tokenizer = Tokenizer.bytes();
    made.add(tokenizer);
    made.add(Dataset.ofText("a text of some tokens, enough of them", tokenizer, Map.of("seq", 4)));
    Graph graph = new Graph();
    made.add(graph);
    graph.output("y", graph.node("tanh", graph.input("x", DType.F32, 4)));
    Tensor tensor = Tensor.of(new float[1000], 1000);
    made.add(tensor);
    tensor.data().get(0);
    made.add(Tensor.borrow(DType.F32, ByteBuffer.allocateDirect(4000), 1000));
    try {
      tensor.data(5000, 1);
    } catch (TesseraException.InvalidArgument e) {
      // wanted
    }
    try {
      Model.load(Path.of("nowhere"));
    } catch (TesseraException.NotFound e) {
      // wanted
    }
    free(made);
  }

  private void heavy() throws Exception {
    List<AutoCloseable> made = new ArrayList<>();
    Runtime runtime = new Runtime(Map.of("threads", 1), new Hooks() {});
    made.add(runtime);
    byte[] kept = new byte[100_000];
    runtime.setLog(record -> kept[0] = 1);
    runtime.setLog(record -> kept[1] = 1);
    Model loaded = RANDOM.nextBoolean() ? Model.load(model) : Model.load(ModelSource.of(FileChannel.open(model)));
    made.add(loaded);
    made.add(loaded.read(loaded.parameters().get(0)));
    made.add(new Plan(runtime, loaded, Map.of("batch", 2)));
    Scorer scorer = new Scorer(runtime, loaded, null);
    made.add(scorer);
    scorer.score(List.of(new int[] {1, 2, 3}));
    Embedder embedder = new Embedder(runtime, loaded, null);
    made.add(embedder);
    embedder.embed(List.of("a", "bc"));
    Generator generator = new Generator(runtime, loaded, Map.of("max_tokens", 4));
    made.add(generator);
    generator.start("ab");
    if (RANDOM.nextBoolean()) {
      generator.rest().count();
    }
    Engine engine = new Engine(runtime, loaded, Map.of("max_tokens", 4, "sequences", 2));
    made.add(engine);
    engine.generate(List.of("ab", "c", "abc"), null);
    Request request = engine.submit("ab", Map.of("keep", true));
    request.text().join();
    Sequence sequence = request.sequence(0);
    made.add(sequence);
    made.add(sequence.fork());
    engine.submit("in progress", null).events().next();
    free(made);
  }

  private void training() throws Exception {
    List<AutoCloseable> made = new ArrayList<>();
    Runtime runtime = new Runtime();
    made.add(runtime);
    Model loaded = Model.load(model);
    made.add(loaded);
    Tokenizer tokenizer = loaded.tokenizer();
    made.add(tokenizer);
    Dataset dataset = Dataset.open(text, tokenizer, Map.of("seq", 32));
    made.add(dataset);
    Trainer trainer = new Trainer(runtime, loaded, dataset, Map.of("devices", "cpu:2", "batch", 4));
    made.add(trainer);
    AtomicReference<Throwable> wrong = new AtomicReference<>();
    Thread steps = new Thread(() -> {
      try {
        for (int i = 0; i < 10; ++i) {
          trainer.step();
        }
        trainer.store(loaded);
      } catch (TesseraException.Cancelled | TesseraException.ValuesLost e) {
        // cancelled
      } catch (Throwable e) {
        wrong.set(e);
      }
    });
    steps.start();
    if (RANDOM.nextBoolean()) {
      Thread.sleep(RANDOM.nextInt(10));
      if (RANDOM.nextBoolean()) {
        trainer.cancel();
      } else {
        steps.interrupt();
      }
    }
    steps.join();
    if (wrong.get() != null) {
      throw new IllegalStateException(wrong.get());
    }
    free(made);
  }
}
