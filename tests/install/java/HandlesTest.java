import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.tessera.Dataset;
import dev.tessera.Embedder;
import dev.tessera.Generator;
import dev.tessera.Graph;
import dev.tessera.Model;
import dev.tessera.Plan;
import dev.tessera.Program;
import dev.tessera.Runtime;
import dev.tessera.Scorer;
import dev.tessera.Session;
import dev.tessera.TesseraException;
import dev.tessera.Tokenizer;
import dev.tessera.Trainer;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentLinkedQueue;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;

final class HandlesTest {
  private static final Map<String, ?> OPTIONS = Map.of("batch", 2);

  @Test
  @DisplayName("null and closed handles are refused")
  void refused() {
    Runtime runtime = Given.runtime();
    Model model = Given.model();
    Tokenizer tokenizer = model.tokenizer();
    Given.invalid("runtime is null", () -> new Trainer(null, model, null, OPTIONS));
    Given.invalid("model is null", () -> new Trainer(runtime, null, null, OPTIONS));
    Given.invalid("dataset", () -> new Trainer(runtime, model, null, OPTIONS));
    Given.invalid("runtime is null", () -> new Generator(null, model, null));
    Given.invalid("model is null", () -> new Scorer(runtime, null, null));
    Given.invalid("model is null", () -> new Embedder(runtime, null, null));
    Given.invalid("model is null", () -> new Plan(runtime, null, null));
    Given.invalid("tokenizer is null", () -> Dataset.open(Given.TEXT, null, null));
    Given.invalid("program is null", () -> new Session(null, null));
    Given.invalid("entries is null", () -> new Program(null, null));

    Given.invalid("ids is null", () -> tokenizer.decode((int[]) null));
    Given.invalid("ids is null", () -> Dataset.ofTokens(null, null));
    Given.invalid("source is null", () -> Model.load((dev.tessera.ModelSource) null));
    Given.invalid("channel is null", () -> Model.load((java.nio.channels.FileChannel) null));

    Trainer trainer = Given.trainer(runtime, model, OPTIONS);
    Thread.currentThread().interrupt();
    assertTrue(trainer.report().contains("plan")); // short calls do not look at interrupts
    assertTrue(Thread.interrupted());
    trainer.close();
    trainer.close();
    assertTrue(trainer.isClosed());
    Given.invalid("trainer is closed", trainer::step);
    Given.invalid("trainer is closed", trainer::report);
    Given.invalid("trainer is closed", () -> trainer.save(Path.of("nowhere")));
    trainer.cancel();
    Generator generator = new Generator(runtime, model, null);
    generator.close();
    Given.invalid("generator is closed", () -> generator.start("a"));
    Given.invalid("generator is closed", generator::next);
    generator.cancel();

    Dataset gone = Dataset.open(Given.TEXT, tokenizer, null);
    gone.close();
    Given.invalid("dataset is closed", () -> new Trainer(runtime, model, gone, OPTIONS));
    Tokenizer lost = Tokenizer.bytes();
    lost.close();
    Given.invalid("tokenizer is closed", () -> model.setTokenizer(lost));
    model.tokenizer().close();
    try (Graph one = new Graph(); Graph other = new Graph()) {
      Given.invalid("another graph", () -> one.output("x", other.input("y", dev.tessera.DType.F32, 1)));
      Given.invalid("input 0 of tanh is null", () -> one.node("tanh", (Graph.Value) null));
    }
    runtime.close();
    Given.invalid("runtime is closed", () -> new Generator(runtime, model, null));
    model.close();
    tokenizer.close();
  }

  @Test
  @DisplayName("a handle may be closed while other threads use it, and used by many")
  void threads() throws InterruptedException {
    try (Runtime runtime = Given.runtime(); Model model = Given.model()) {
      ConcurrentLinkedQueue<Throwable> wrong = new ConcurrentLinkedQueue<>();
      for (int i = 0; i < 20; ++i) {
        Trainer trainer = Given.trainer(runtime, model, OPTIONS);
        List<Thread> threads = new ArrayList<>();
        for (Runnable body : List.<Runnable>of(trainer::step, trainer::step, trainer::report, trainer::cancel, trainer::close)) {
          threads.add(Given.daemon(() -> {
            try {
              for (int j = 0; j < 5; ++j) {
                body.run();
              }
            } catch (TesseraException.InvalidArgument | TesseraException.Cancelled | TesseraException.ValuesLost e) {
              // closed or cancelled meanwhile
            } catch (Throwable e) {
              wrong.add(e);
            }
          }));
        }
        for (Thread thread : threads) {
          thread.join();
        }
      }
      assertEquals(List.of(), List.copyOf(wrong));
    }
  }

  @Test
  @DisplayName("handles that nobody closes are freed once they are garbage, in any order")
  void garbage() throws InterruptedException {
    List<java.lang.ref.WeakReference<Object>> made = new ArrayList<>();
    for (int i = 0; i < 20; ++i) {
      Runtime runtime = Given.runtime();
      Model model = Given.model();
      Trainer trainer = Given.trainer(runtime, model, OPTIONS);
      trainer.step();
      Generator generator = new Generator(runtime, model, null);
      generator.start("a");
      for (Object handle : List.of(runtime, model, trainer, generator)) {
        made.add(new java.lang.ref.WeakReference<>(handle));
      }
    }
    Given.collectUntil("all are garbage", () -> made.stream().allMatch(each -> each.get() == null));
  }

  @Test
  @DisplayName("what is made from handles lives without them")
  void order() {
    Runtime runtime = Given.runtime();
    Model model = Given.model();
    Generator generator = new Generator(runtime, model, Map.of("max_tokens", 3));
    runtime.close();
    model.close();
    assertFalse(generator.isClosed());
    generator.start("ab");
    assertEquals(3, generator.rest().filter(piece -> piece.token() >= 0).count());
    assertEquals(Generator.Finish.LENGTH, generator.finish());
    generator.close();
  }
}
