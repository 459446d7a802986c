package dev.tessera;

import dev.tessera.raw.Raw;
import java.nio.file.Path;
import java.util.Iterator;
import java.util.Map;
import java.util.NoSuchElementException;
import java.util.Optional;
import java.util.Spliterator;
import java.util.Spliterators;
import java.util.function.Function;
import java.util.function.LongSupplier;
import java.util.function.LongUnaryOperator;
import java.util.stream.Stream;
import java.util.stream.StreamSupport;

/**
 * A training run: a training from its first step to its result, with evaluations, samples, checkpoints, early stopping, metrics
 * and report, as {@code tessera train} makes it. The header lists its options under "training run".
 *
 * <pre>{@code
 * try (Run run = new Run(trainer, Map.of("out", "tuned.tsr", "eval_every", 10, "keep_best", true))) {
 *   run.stream().forEach(System.out::println);
 * }
 * }</pre>
 *
 * <p>Between two calls the trainer may be used. An interrupt of the thread, or a {@link Cancellation}, stops the run as
 * {@link #stop} does; what goes on with the run then throws {@link TesseraException.Cancelled} at its end.
 */
public final class Run extends Handle {
  private final Trainer trainer;
  private volatile String outcome = null;

  /** Resumes the trainer where option resume says so, and opens the files of the run. options may be null. */
  public Run(Trainer trainer, Map<String, ?> options) {
    super("run", Raw::tsr_run_free, true, source(trainer), make(trainer, options));
    this.trainer = trainer;
  }

  private static long make(Trainer trainer, Map<String, ?> options) {
    try (Use use = use(trainer, "trainer"); OptionSet set = new OptionSet(options)) {
      return Native.made(use,
          out -> Cancellation.guard(trainer::cancel, () -> Raw.tsr_run_new(use.pointer, set.pointer, out)));
    }
  }

  /**
   * Throws what makes a run with these options impossible, before long work. model and dataset may be null, and are not looked
   * at then.
   */
  public static void check(Map<String, ?> options, Model model, Dataset dataset) {
    try (Use m = optional(model); Use d = optional(dataset); OptionSet set = new OptionSet(options)) {
      m.check(Raw.tsr_run_check(set.pointer, m.pointer, d.pointer));
    }
  }

  /**
   * The checkpoint's folder that option resume means by {@code name}: the folder itself, or that next to a model or adapters.
   * {@link TesseraException.NotFound} where there is none.
   */
  public static Path resumedFolder(Path name) {
    byte[] given = Text.path("name", name);
    try (Use none = optional(null)) {
      return Path.of(Native.shortText(none, (buffer, size) -> Raw.tsr_run_resumed_folder(given, buffer, size)));
    }
  }

  /** Goes on until the next event; empty at the end of the run. After an exception another call tries again what failed. */
  public Optional<RunEvent> next() {
    int[] kind = new int[1];
    long[] step = new long[1];
    double[] loss = new double[1];
    byte[][] details = new byte[1][];
    call(run -> stoppable(() -> Raw.tsr_raw_run_next(run, kind, step, loss, details)));
    RunEvent event = new RunEvent(RunEvent.Kind.values()[kind[0]], step[0], loss[0], Text.string(details[0]));
    if (event.kind() != RunEvent.Kind.END) {
      return Optional.of(event);
    }
    outcome = String.valueOf(Json.object(event.details()).get("outcome"));
    if (outcome.startsWith("stopped at")) {
      Cancellation.check();
    }
    return Optional.empty();
  }

  /** A call with the run, while no other one uses the trainer. */
  private <T> T alone(Function<Use, T> call) {
    Use training = ifOpen(trainer);
    try (Use use = use()) {
      return call.apply(use);
    } finally {
      training.close();
    }
  }

  private void call(LongUnaryOperator call) {
    alone(use -> {
      use.check(call.applyAsLong(use.pointer));
      return null;
    });
  }

  /** A call that goes on with the run, which an interrupt or a Cancellation stops; also where that came before the call. */
  private long stoppable(LongSupplier call) {
    try {
      return Cancellation.guard(this::stop, call);
    } catch (TesseraException.Cancelled e) {
      stop();
      return call.getAsLong();
    }
  }

  /** The events of the run, as they come. */
  public Iterator<RunEvent> events() {
    return new Iterator<>() {
      private Optional<RunEvent> ready = Optional.empty();
      private boolean ended = false;

      @Override
      public boolean hasNext() {
        if (ready.isEmpty() && !ended) {
          ready = Run.this.next();
          ended = ready.isEmpty();
        }
        return ready.isPresent();
      }

      @Override
      public RunEvent next() {
        if (!hasNext()) {
          throw new NoSuchElementException("the run has ended");
        }
        RunEvent event = ready.get();
        ready = Optional.empty();
        return event;
      }
    };
  }

  /** The events of the run, as they come. */
  public Stream<RunEvent> stream() {
    return StreamSupport.stream(
        Spliterators.spliteratorUnknownSize(events(), Spliterator.ORDERED | Spliterator.NONNULL), false);
  }

  /** Goes on to the end of the run: {@link #outcome} says which. */
  public void finish() {
    call(run -> stoppable(() -> Raw.tsr_run_finish(run)));
    next();
  }

  /**
   * How the run ended: "finished", "stopped early at step 60" by patience, or "stopped at step 60" by {@link #stop}; empty while it
   * goes on.
   */
  public Optional<String> outcome() {
    return Optional.ofNullable(outcome);
  }

  /** Lets the run save a checkpoint after the step in progress and end, without a result. Any thread. */
  public void stop() {
    cancelBy(Raw::tsr_run_stop);
  }

  /** An evaluation now, which counts as that of this step: JSON as that of {@link Trainer#evaluateAll}. */
  public String evaluate() {
    return alone(use -> Native.text(use,
        out -> Cancellation.guard(trainer::cancel, () -> Raw.tsr_run_evaluate(use.pointer, out))));
  }

  /** Makes a checkpoint now, whole when this returns. {@link TesseraException.FailedPrecondition} where the run writes none. */
  public void save() {
    call(run -> Cancellation.guard(trainer::cancel, () -> Raw.tsr_run_save(run)));
  }

  /**
   * Loads the values of the best step into the trainer, once the run has ended. {@link TesseraException.NotFound} where it has no
   * checkpoint of that step.
   */
  public void loadBest() {
    call(run -> Cancellation.guard(trainer::cancel, () -> Raw.tsr_run_load_best(run)));
  }

  /** JSON: steps, losses, evaluations, the best step, checkpoints, the result. */
  public String report() {
    return alone(use -> Native.text(use, out -> Raw.tsr_run_report(use.pointer, out)));
  }
}
