import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotSame;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.tessera.Dataset;
import dev.tessera.Generator;
import dev.tessera.Hooks;
import dev.tessera.Model;
import dev.tessera.Runtime;
import dev.tessera.TesseraException;
import dev.tessera.Trainer;
import java.lang.ref.WeakReference;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CopyOnWriteArrayList;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;

/** What a runtime calls: its log, its memory and its threads. */
final class CallbacksTest {
  private static final IllegalStateException MINE = new IllegalStateException("mine");

  /** Has something to say: weights in few bits train in more. */
  private static void warn(Runtime runtime) {
    Path file = Given.WORK.resolve("few_bits.tsr");
    if (!Files.exists(file)) {
      try (Model model = Given.model()) {
        model.quantize(null, file, Map.of("type", "q8_0"));
      }
    }
    try (Model model = Model.load(file)) {
      Given.trainer(runtime, model, Map.of("batch", 1)).close();
    }
  }

  /** What the thread's handler hears while body runs. */
  private static List<Throwable> uncaught(Runnable body) {
    List<Throwable> heard = new CopyOnWriteArrayList<>();
    Thread.UncaughtExceptionHandler before = Thread.getDefaultUncaughtExceptionHandler();
    Thread.setDefaultUncaughtExceptionHandler((thread, thrown) -> {
      heard.add(thrown);
      throw new AssertionError("handlers may throw");
    });
    try {
      body.run();
    } finally {
      Thread.setDefaultUncaughtExceptionHandler(before);
    }
    return heard;
  }

  @Test
  @DisplayName("a function hears the log as it is written")
  void log() {
    List<Runtime.LogRecord> heard = new ArrayList<>();
    Runtime runtime = Given.runtime();
    runtime.setLog(heard::add);
    warn(runtime);
    assertEquals(1, heard.size());
    assertEquals(Runtime.LogLevel.WARNING, heard.get(0).level());
    assertTrue(heard.get(0).text().startsWith("training: "));
    assertEquals(heard.get(0), runtime.nextLog().orElseThrow());

    runtime.setLog(record -> {
      throw MINE;
    });
    assertEquals(List.of(MINE), uncaught(() -> warn(runtime)));

    List<Throwable> refused = new ArrayList<>();
    runtime.setLog(record -> {
      runtime.nextLog();
      try {
        runtime.setLog(null);
      } catch (TesseraException e) {
        refused.add(e);
      }
    });
    warn(runtime);
    assertEquals(1, refused.size());
    assertTrue(refused.get(0) instanceof TesseraException.Busy);

    runtime.setLog(heard::add);
    runtime.setLog(null);
    runtime.setLog(null);
    warn(runtime);
    assertEquals(1, heard.size());

    runtime.setLog(record -> {
      runtime.close();
      heard.add(record);
    });
    warn(runtime);
    assertEquals(2, heard.size());
    assertTrue(runtime.isClosed());
    Given.invalid("runtime is closed", () -> runtime.setLog(heard::add));
  }

  @Test
  @DisplayName("a log may be replaced while others write to it, and goes with its runtime")
  void logs() throws InterruptedException {
    List<WeakReference<Object>> made = new ArrayList<>();
    List<Runtime.LogRecord> heard = new CopyOnWriteArrayList<>();
    for (int i = 0; i < 10; ++i) {
      Runtime runtime = Given.runtime();
      if (i % 2 == 0) {
        runtime.setLog(heard::add);
        Thread writer = Given.daemon(() -> warn(runtime));
        while (writer.isAlive()) {
          runtime.setLog(heard::add);
          runtime.setLog(null);
        }
        runtime.setLog(record -> runtime.cancel());
        runtime.close();
      } else {
        Object[] mine = {new Object()};
        runtime.setLog(record -> heard.add(mine[0] == null ? null : record));
        warn(runtime);
        made.add(new WeakReference<>(mine));
      }
      made.add(new WeakReference<>(runtime));
    }
    assertTrue(heard.size() >= 5);
    Given.collectUntil("all are garbage", () -> made.stream().allMatch(each -> each.get() == null));
  }

  /** Memory of direct buffers, which it counts. */
  private static class Buffers implements Hooks, Hooks.Memory {
    final Map<Long, ByteBuffer> memory = new ConcurrentHashMap<>();
    final List<String> wrong = new CopyOnWriteArrayList<>();
    final Map<String, Thread> threads = new ConcurrentHashMap<>();
    volatile long most = 0;
    volatile Throwable refusal = null;

    @Override
    public Memory memory() {
      return this;
    }

    @Override
    public long allocate(long bytes, long alignment) {
      if (refusal instanceof Error error) {
        throw error;
      } else if (refusal != null) {
        return 0;
      }
      ByteBuffer made = ByteBuffer.allocateDirect((int) (bytes + 2 * alignment)).alignedSlice((int) alignment).limit((int) bytes);
      long address = Hooks.address(made);
      if (address % alignment != 0) {
        wrong.add(address + " is not aligned to " + alignment);
      }
      most = Math.max(most, bytes);
      memory.put(address, made);
      return address;
    }

    @Override
    public void deallocate(long address, long bytes) {
      ByteBuffer given = memory.remove(address);
      if (given == null || given.limit() != bytes) {
        wrong.add("freed " + bytes + " bytes at " + address + ", which are " + given);
      }
      if (refusal != null) {
        throw MINE;
      }
    }

    @Override
    public void threadStarted(String role, int number) {
      threads.put(role + " " + number, Thread.currentThread());
      if (refusal != null) {
        throw MINE;
      }
    }
  }

  private static List<Double> losses(Runtime runtime) {
    List<Double> losses = new ArrayList<>();
    try (Model model = Given.model();
        Trainer trainer = Given.trainer(runtime, model, Map.of("devices", "cpu:2", "parallel", "dp=2", "batch", 2));
        Generator generator = new Generator(runtime, model, Map.of("max_tokens", 2))) {
      for (int i = 0; i < 3; ++i) {
        losses.add(trainer.step().loss());
      }
      assertTrue(generator.texts("ab").count() > 0);
    }
    return losses;
  }

  @Test
  @DisplayName("arenas lie in memory of the program's, which is given back, and it hears of threads that compute")
  void hooks() {
    Buffers buffers = new Buffers();
    Map<String, ?> options = Map.of("threads", 2);
    try (Runtime runtime = new Runtime(options, buffers); Runtime plain = new Runtime(options, null)) {
      assertEquals(losses(plain), losses(runtime));
      assertTrue(buffers.most > 35000 * 4);  // all parameters
      assertEquals(Map.of(), buffers.memory);
      assertTrue(buffers.threads.keySet().containsAll(List.of("kernels 1", "rank 1", "generator 0")), buffers.threads::toString);
      buffers.threads.values().forEach(thread -> assertNotSame(Thread.currentThread(), thread));
      assertFalse(buffers.threads.containsKey("rank 0"));

      for (Throwable refusal : new Throwable[] {MINE, new StackOverflowError("mine")}) {
        buffers.refusal = refusal;
        List<Throwable> told = uncaught(() -> Given.refused(
            TesseraException.OutOfMemory.class, "the program's allocator has no", () -> losses(runtime)));
        assertTrue(refusal == MINE || told.contains(refusal), told::toString);
        buffers.refusal = null;
        assertEquals(3, losses(runtime).size());
      }
      try (Model model = Given.model()) {
        Trainer trainer = Given.trainer(runtime, model, Map.of("devices", "cpu:2", "batch", 2));
        buffers.refusal = MINE;
        List<Throwable> told = uncaught(() -> {
          trainer.step();
          trainer.close();
        });
        assertTrue(told.size() > 0);
        told.forEach(thrown -> assertSame(MINE, thrown));
      }
    }
    assertEquals(Map.of(), buffers.memory);
    assertEquals(List.of(), buffers.wrong);
  }

  @Test
  @DisplayName("hooks go with their runtime, also where it is not made")
  void released() throws InterruptedException {
    List<WeakReference<Object>> made = new ArrayList<>();
    for (int i = 0; i < 6; ++i) {
      Hooks hooks = i % 2 == 0 ? new Buffers() : new Hooks() {};
      if (i < 2) {
        Given.invalid("thread", () -> new Runtime(Map.of("thread", 2), hooks));
      } else if (i < 4) {
        new Runtime(Map.of("threads", 2), hooks).close();
      } else {
        Runtime runtime = new Runtime(Map.of("threads", 2), hooks);
        made.add(new WeakReference<>(runtime));
        try (Model model = Given.model(); Dataset dataset = Dataset.ofTokens(new int[100], Map.of("seq", 8))) {
          new Trainer(runtime, model, dataset, Map.of("batch", 1)).step();
        }
      }
      made.add(new WeakReference<>(hooks));
    }
    Given.collectUntil("all are garbage", () -> made.stream().allMatch(each -> each.get() == null));
    Given.invalid("heap of Java", () -> Hooks.address(ByteBuffer.allocate(1)));
    Given.invalid("buffer is null", () -> Hooks.address(null));
  }
}
