import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.tessera.*;
import dev.tessera.Run;
import dev.tessera.RunLog;
import dev.tessera.Runtime;
import java.io.IOException;
import java.lang.reflect.Constructor;
import java.lang.reflect.Executable;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import java.util.concurrent.Callable;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.Consumer;
import java.util.function.DoubleConsumer;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;

/** Every public method and constructor, with arguments that nobody should give. */
final class HostileTest {
  private static final int TIMES = Integer.getInteger("times", 40);

  private final Random random = new Random(1);
  private final Map<Class<?>, List<Object>> values = new HashMap<>();
  private final Map<String, Integer> outcomes = new ConcurrentHashMap<>();
  private final Set<String> wrong = ConcurrentHashMap.newKeySet();

  private void give(Class<?> type, Object... some) {
    values.computeIfAbsent(type, key -> new ArrayList<>()).addAll(Arrays.asList(some));
  }

  private void handle(Object open, AutoCloseable closed) throws Exception {
    closed.close();
    give(open.getClass(), open, closed, null);
  }

  private void prepare() throws Exception {
    Path file = Given.WORK.resolve("hostile");
    Files.write(file, new byte[] {1, 2, 3});
    Runtime runtime = Given.runtime();
    handle(runtime, Given.runtime());
    Model model = Given.model();
    handle(model, Given.model());
    Tokenizer tokenizer = Tokenizer.bytes();
    handle(tokenizer, Tokenizer.bytes());
    Dataset dataset = Dataset.ofTokens(new int[100], Map.of("seq", 4));
    handle(dataset, Dataset.ofTokens(new int[100], Map.of("seq", 4)));
    Graph graph = new Graph();
    Graph other = new Graph();
    give(Graph.Value.class, graph.input("x", DType.F32, 2), other.input("x", DType.F32, 2), new Graph.Value(graph, -1),
        new Graph.Value(graph, 1 << 30), null);
    graph.output("y", graph.node("tanh", graph.find("x")));
    handle(graph, other);
    Devices devices = new Devices(runtime, "cpu:2");
    handle(devices, new Devices(runtime, "cpu:1"));
    Plan plan = Plan.forGraph(devices, graph, null);
    handle(plan, Plan.forGraph(devices, graph, null));
    Program program = new Program(devices, List.of(new Program.Entry("go", graph, plan)));
    handle(program, new Program(devices, List.of(new Program.Entry("go", graph, plan))));
    handle(new Session(program, null), new Session(program, null));
    Trainer trainer = new Trainer(runtime, model, dataset, Map.of("batch", 2));
    handle(trainer.startSave(Given.WORK.resolve("started"), null), trainer.startSave(Given.WORK.resolve("closed"), null));
    RunLog closedLog = new RunLog(trainer, Map.of("report", Given.WORK.resolve("hostile.html")));
    handle(new RunLog(trainer, Map.of("metrics", Given.WORK.resolve("hostile.jsonl"))), closedLog);
    Map<String, ?> threeSteps = Map.of("steps", 3, "checkpoint_every", 0);
    handle(new Run(trainer, threeSteps), new Run(trainer, threeSteps));
    handle(trainer, new Trainer(runtime, model, dataset, Map.of("batch", 2)));
    handle(new Generator(runtime, model, Map.of("max_tokens", 2)), new Generator(runtime, model, null));
    Map<String, ?> few = Map.of("max_tokens", 3, "sequences", 2);
    Engine engine = new Engine(runtime, model, few);
    Engine closed = new Engine(runtime, model, few);
    give(Request.class, engine.submit("a", null), closed.submit("a", null), null);
    Request kept = engine.submit("a", Map.of("keep", true));
    kept.text().join();
    Sequence sequence = kept.sequence(0);
    handle(sequence, sequence.fork());
    handle(engine, closed);
    handle(new Scorer(runtime, model, null), new Scorer(runtime, model, null));
    handle(new Embedder(runtime, model, null), new Embedder(runtime, model, null));
    handle(Chat.of("{{ messages }}", tokenizer), Chat.of("x", null));
    handle(Tensor.of(new float[6], 2, 3), Tensor.of(new float[1]));
    give(Tensor.class, Tensor.borrow(DType.F32, ByteBuffer.allocateDirect(8), 2), new Tensor(DType.Q4_0, 32));

    give(Dataset.Rows.class, null, new Dataset.Rows(null, null, null, null, null),
        new Dataset.Rows(new int[] {1, 2, 3, 4}, null, null, null, null),
        new Dataset.Rows(new int[] {1, -2}, new int[] {1}, new float[] {Float.NaN, 1}, new int[] {0, 0}, new int[] {Integer.MAX_VALUE, 0}));

    give(Trainer.Batch.class, null, new Trainer.Batch(2, new int[] {1, 2}, new int[] {2, -1}),
        new Trainer.Batch(1, new int[] {-7}, new int[] {1 << 30}, new int[] {-1}, new int[] {5}, new float[] {Float.NaN},
            new float[] {1}, new float[] {2}));

    give(String.class, null, "", "\0", "x\0", "\uD800", "x", "cpu:2", "go", "y", "{", "[]", "ä\uD83D\uDE00", "%s%n", "x".repeat(100000));
    give(int.class, 0, 1, -1, Integer.MAX_VALUE, Integer.MIN_VALUE);
    give(long.class, 0L, 1L, -1L, 4L, Long.MAX_VALUE, Long.MIN_VALUE, 1L << 40);
    give(double.class, 0.0, 0.5, -1.0, Double.NaN, Double.POSITIVE_INFINITY, Double.MAX_VALUE);
    give(boolean.class, true, false);
    give(int[].class, null, new int[0], new int[] {1, 2}, new int[] {-1, Integer.MAX_VALUE}, new int[5000]);
    give(long[].class, null, new long[0], new long[] {2, 3}, new long[] {-5}, new long[] {Long.MAX_VALUE, Long.MAX_VALUE}, new long[9]);
    give(float[].class, null, new float[0], new float[] {Float.NaN, 1});
    give(Path.class, null, Path.of(""), file, Given.WORK, Given.WORK.resolve("none/none"), Path.of("/proc/self/mem"), Path.of("/dev/null"));
    give(ByteBuffer.class, null, ByteBuffer.allocate(4), ByteBuffer.allocateDirect(0), ByteBuffer.allocateDirect(24),
        ByteBuffer.allocateDirect(64).asReadOnlyBuffer());
    give(DType.class, (Object[]) DType.values());
    give(DType.class, (Object) null);
    give(Duration.class, null, Duration.ZERO, Duration.ofSeconds(-1), Duration.ofMillis(1));
    give(DoubleConsumer.class, null, (DoubleConsumer) done -> {});
    give(Graph.Value[].class, null, new Graph.Value[0], new Graph.Value[] {null},
        new Graph.Value[] {(Graph.Value) values.get(Graph.Value.class).get(0)});
    give(Tokenizer.Encode[].class, null, new Tokenizer.Encode[0], new Tokenizer.Encode[] {null}, Tokenizer.Encode.values());
    give(Map.class, null, Map.of(), Map.of("none", 1), Map.of("seq", -1), Map.of("batch", "x"), Map.of("devices", "cpu:0"),
        Map.of("devices", "cpu:2", "batch", 2), Collections.singletonMap(null, 1), Collections.singletonMap("seq", null),
        Map.of("threads", Long.MIN_VALUE), Map.of("memory_limit", "1"), Map.of("format", "\uDC00"), Map.of("lr", Double.NaN),
        Map.of("axes", new long[] {99}), Map.of("seconds", 1.0));
    give(List.class, null, List.of(), Collections.singletonList(null));
    give(Callable.class, (Callable<Object>) () -> 1);
    give(Runnable.class, (Runnable) () -> {});
    give(java.nio.channels.SeekableByteChannel.class, (Object) null);
    give(ModelSource.class, (Object) null);
    give(Consumer.class, null, (Consumer<Object>) record -> runtime.nextLog());
    give(Hooks.class, null, new Hooks() {}, new Hooks() {
      @Override
      public Memory memory() {
        return new Memory() {
          @Override
          public long allocate(long bytes, long alignment) {
            return 0;
          }

          @Override
          public void deallocate(long address, long memoryBytes) {}
        };
      }
    });
    give(Object.class, null, "x", 1, List.of());
  }

  private Object value(Class<?> type) {
    List<Object> some = values.get(type);
    assertTrue(some != null, () -> "no values for " + type);
    return some.get(random.nextInt(some.size()));
  }

  @Test
  @DisplayName("every method, with arguments that nobody should give, returns or throws an exception of its own")
  void alone() throws Exception {
    prepare();
    callAll(TIMES);
    finish();
  }

  @Test
  @DisplayName("the same on several threads, with the same handles")
  void together() throws Exception {
    prepare();
    List<Thread> threads = new ArrayList<>();
    for (int i = 0; i < 4; ++i) {
      threads.add(Given.daemon(() -> callAll(TIMES / 4)));
    }
    for (Thread thread : threads) {
      thread.join();
    }
    finish();
  }

  private void finish() {
    assertEquals(List.of(), List.copyOf(wrong));
    assertTrue(outcomes.get("returned") > 100 && outcomes.get("refused") > 1000, outcomes::toString);
  }

  private void callAll(int times) {
    for (Class<?> type : List.of(Tessera.class, Runtime.class, Hooks.class, Devices.class, Tensor.class,
        Graph.class, Tokenizer.class, Model.class, ModelFiles.class, Chat.class, Dataset.class, Plan.class, Program.class,
        Session.class, Trainer.class, Saving.class, Run.class, RunLog.class, Generator.class, Engine.class, Request.class,
        Sequence.class, Scorer.class, Embedder.class, Json.class, Cancellation.class)) {
      List<Executable> calls = new ArrayList<>(List.of(type.getConstructors()));
      calls.addAll(Arrays.asList(type.getDeclaredMethods()));
      calls.removeIf(call -> !Modifier.isPublic(call.getModifiers()) || call.isSynthetic());
      for (Executable call : calls) {
        for (int i = 0; i < times; ++i) {
          String found = outcome(type, call);
          outcomes.merge(found.startsWith("!") ? "wrong" : found, 1, Integer::sum);
          if (found.startsWith("!")) {
            wrong.add(found);
          }
        }
      }
    }
  }

  private String outcome(Class<?> type, Executable call) {
    Object[] arguments = Arrays.stream(call.getParameterTypes()).map(this::value).toArray();
    try {
      Object made;
      if (call instanceof Constructor<?> constructor) {
        made = constructor.newInstance(arguments);
      } else {
        Object on = Modifier.isStatic(call.getModifiers()) ? null : type == Cancellation.class ? new Cancellation() : value(type);
        if (on == null && !Modifier.isStatic(call.getModifiers())) {
          return "null";
        }
        made = ((Method) call).invoke(on, arguments);
      }
      if (made instanceof AutoCloseable closeable && random.nextBoolean()) {
        closeable.close();
      }
      return "returned";
    } catch (InvocationTargetException e) {
      Throwable thrown = e.getCause();
      if (thrown instanceof TesseraException.Internal) {
        return "! " + call + " " + thrown;
      }
      return thrown instanceof TesseraException || thrown instanceof IOException ? "refused"
          : "! " + call + Arrays.toString(arguments).replaceAll("x{20,}", "x...") + " " + thrown;
    } catch (Exception e) {
      return "! " + call + " " + e;
    }
  }
}
