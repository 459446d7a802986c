package dev.tessera;

import dev.tessera.raw.Raw;
import java.time.Duration;
import java.util.Iterator;
import java.util.Map;
import java.util.NoSuchElementException;
import java.util.Optional;
import java.util.Spliterator;
import java.util.Spliterators;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import java.util.stream.StreamSupport;

/**
 * Continues texts, token by token; the header lists its options under tsr_generator_new, and those of one text under
 * tsr_generator_start_with. A thread of its own computes while the pieces are collected.
 *
 * <pre>{@code
 * generator.stream("Once upon a time").map(Piece::text).forEach(System.out::print);
 * }</pre>
 */
public final class Generator extends Handle {
  /** Why a text is complete. NONE: it is not. FAILED: of an {@link Engine} alone, {@link Event#failure} says why. */
  public enum Finish { NONE, LENGTH, STOP, CANCELLED, FAILED }

  private static final double SLICE_S = 0.05;

  private volatile Finish finish = Finish.NONE;

  /** Plans, and prepares the devices. options may be null. */
  public Generator(Runtime runtime, Model model, Map<String, ?> options) {
    super("generator", Raw::tsr_generator_free, true, source(model), make(runtime, model, options));
  }

  /** A generator on the weights that a trainer trains, as {@link Engine#Engine(Trainer, Map)} is an engine. */
  public Generator(Trainer trainer, Map<String, ?> options) {
    super("generator", Raw::tsr_generator_free, true, source(trainer), make(trainer, options));
  }

  private static long make(Trainer trainer, Map<String, ?> options) {
    try (Use t = use(trainer, "trainer"); OptionSet set = new OptionSet(options)) {
      return Native.made(t, out -> Raw.tsr_generator_new_for_trainer(t.pointer, set.pointer, out));
    }
  }

  private static long make(Runtime runtime, Model model, Map<String, ?> options) {
    try (Use r = use(runtime, "runtime"); Use m = use(model, "model"); OptionSet set = new OptionSet(options)) {
      return Native.made(m, out -> Cancellation.guard(runtime::cancel,
          () -> Raw.tsr_generator_new(r.pointer, m.pointer, set.pointer, out)));
    }
  }

  /** Begins a new text; what is pending of an earlier one is dropped. */
  public void start(String prompt) {
    byte[] given = Text.bytes("prompt", prompt);
    try (Use use = use()) {
      use.check(Raw.tsr_generator_start(use.pointer, given));
      finish = Finish.NONE;
    }
  }

  /** The same with options of this text alone. */
  public void start(String prompt, Map<String, ?> options) {
    byte[] given = Text.bytes("prompt", prompt);
    try (Use use = use(); OptionSet set = new OptionSet(options)) {
      use.check(Raw.tsr_generator_start_with(use.pointer, set.pointer, given));
      finish = Finish.NONE;
    }
  }

  /** Begins a new text with token ids, such as those of {@link Chat#encode}. */
  public void start(int[] ids) {
    Native.required("ids", ids);
    try (Use use = use()) {
      use.check(Raw.tsr_generator_start_tokens(use.pointer, ids));
      finish = Finish.NONE;
    }
  }

  /** The same with options of this text alone. */
  public void start(int[] ids, Map<String, ?> options) {
    Native.required("ids", ids);
    try (Use use = use(); OptionSet set = new OptionSet(options)) {
      use.check(Raw.tsr_generator_start_tokens_with(use.pointer, set.pointer, ids));
      finish = Finish.NONE;
    }
  }

  /** Waits for the next piece; empty where the text is complete. An interrupt or a {@link Cancellation} ends the text. */
  public Optional<Piece> next() {
    return next(Double.POSITIVE_INFINITY);
  }

  /** The same, also empty where nothing came within {@code timeout}: {@link #finish} tells which. */
  public Optional<Piece> next(Duration timeout) {
    return next(Native.required("timeout", timeout).toNanos() * 1e-9);
  }

  private Optional<Piece> next(double timeout) {
    int[] fields = new int[3];
    byte[][] text = new byte[1][];
    try (Use use = use()) {
      for (double left = Math.max(timeout, 0);; left -= SLICE_S) {
        try {
          Cancellation.check();
        } catch (TesseraException.Cancelled e) {
          Raw.tsr_generator_cancel(use.pointer);
          throw e;
        }
        use.check(Raw.tsr_raw_generator_next(use.pointer, Math.min(left, SLICE_S), fields, text));
        if (fields[0] == Raw.TSR_PIECE) {
          return Optional.of(new Piece(fields[2], text[0]));
        }
        if (fields[0] == Raw.TSR_END) {
          finish = Finish.values()[fields[1]];
          return Optional.empty();
        }
        if (left <= SLICE_S) {
          return Optional.empty();
        }
      }
    }
  }

  /** Why the text is complete, once {@link #next} found that it is. */
  public Finish finish() {
    return finish;
  }

  /** The pieces of the text begun, as they come. */
  public Iterator<Piece> pieces() {
    return new Iterator<>() {
      private Optional<Piece> ready = Optional.empty();
      private boolean complete = false;

      @Override
      public boolean hasNext() {
        if (ready.isEmpty() && !complete) {
          ready = Generator.this.next();
          complete = ready.isEmpty();
        }
        return ready.isPresent();
      }

      @Override
      public Piece next() {
        if (!hasNext()) {
          throw new NoSuchElementException("the text is complete");
        }
        Piece piece = ready.get();
        ready = Optional.empty();
        return piece;
      }
    };
  }

  /** Begins a new text: its pieces. Closing the stream ends the text. */
  public Stream<Piece> stream(String prompt) {
    start(prompt);
    return rest();
  }

  /** The same with options of this text alone. */
  public Stream<Piece> stream(String prompt, Map<String, ?> options) {
    start(prompt, options);
    return rest();
  }

  /** Begins a new text: the texts of its pieces. */
  public Stream<String> texts(String prompt) {
    return stream(prompt).map(Piece::text);
  }

  /** The pieces that are left of the text begun. */
  public Stream<Piece> rest() {
    return StreamSupport.stream(Spliterators.spliteratorUnknownSize(pieces(), Spliterator.ORDERED | Spliterator.NONNULL), false)
        .onClose(this::cancel);
  }

  /** The whole text that follows a prompt. Options, of this text alone, may be null. */
  public String generate(String prompt, Map<String, ?> options) {
    start(prompt, options);
    return rest().map(Piece::text).collect(Collectors.joining());
  }

  /** JSON: tokens, the seed that the text was drawn from, speed, memory. */
  public String report() {
    try (Use use = use()) {
      return Native.text(use, out -> Raw.tsr_generator_report(use.pointer, out));
    }
  }

  /** What ran since the last call, once the text is complete; needs the option trace. */
  public String trace() {
    try (Use use = use()) {
      return Native.text(use, out -> Raw.tsr_generator_take_trace(use.pointer, out));
    }
  }

  /** Logits of the last token computed, f32 [V], once the text is complete. */
  public Tensor logits() {
    try (Use use = use()) {
      return new Tensor(null, Native.made(use, out -> Raw.tsr_generator_logits(use.pointer, out)));
    }
  }

  /** Ends the text in progress, which then is complete, with {@link Finish#CANCELLED}. Any thread. */
  public void cancel() {
    cancelBy(Raw::tsr_generator_cancel);
  }
}
