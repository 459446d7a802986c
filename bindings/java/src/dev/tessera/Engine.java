package dev.tessera;

import dev.tessera.raw.Raw;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.NoSuchElementException;
import java.util.Optional;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/**
 * Serves many requests at once over one model; the header lists its options under tsr_engine_new, and those of a request under
 * tsr_engine_submit. Its events are collected in one of two ways, and the first call of either decides which; the other is
 * refused:
 *
 * <ul>
 *   <li>each request's by the {@link Request}, on any number of threads;
 *   <li>those of all requests by {@link #next} or {@link #events}, on one thread at a time.
 * </ul>
 *
 * <pre>{@code
 * CompletableFuture<String> first = engine.submit("Once upon a time", null).text();
 * engine.submit("To be", Map.of("max_tokens", 20)).stream().map(Event::text).forEach(System.out::print);
 * System.out.println(first.join());
 * }</pre>
 */
public final class Engine extends Handle {
  private final EventRouter router = new EventRouter(this);
  private final long texts;  // of requests without an option n

  /** Plans, and prepares the devices. options may be null. */
  public Engine(Runtime runtime, Model model, Map<String, ?> options) {
    super("engine", Raw::tsr_engine_free, false, source(model), make(runtime, model, options));
    texts = texts(options, 1);
  }

  /**
   * An engine on the weights that a trainer trains, without a copy: by its plan, between its updates. The header lists the
   * options under tsr_engine_new_for_trainer.
   */
  public Engine(Trainer trainer, Map<String, ?> options) {
    super("engine", Raw::tsr_engine_free, false, source(trainer), make(trainer, options));
    texts = texts(options, 1);
  }

  private static long make(Trainer trainer, Map<String, ?> options) {
    try (Use t = use(trainer, "trainer"); OptionSet set = new OptionSet(options)) {
      return Native.made(t, out -> Raw.tsr_engine_new_for_trainer(t.pointer, set.pointer, out));
    }
  }

  private static long make(Runtime runtime, Model model, Map<String, ?> options) {
    try (Use r = use(runtime, "runtime"); Use m = use(model, "model"); OptionSet set = new OptionSet(options)) {
      return Native.made(m, out -> Cancellation.guard(runtime::cancel,
          () -> Raw.tsr_engine_new(r.pointer, m.pointer, set.pointer, out)));
    }
  }

  /** How many texts end, by options that the library found to be integers; otherwise where n is not given. */
  private static long texts(Map<String, ?> options, long otherwise) {
    boolean isText = integer(options, "embed", 0) != 1 && integer(options, "score_from", -1) < 0;
    return isText ? integer(options, "n", otherwise) : 1;
  }

  private static long integer(Map<String, ?> options, String name, long otherwise) {
    Object value = options == null || options.isEmpty() ? null : options.get(name);
    if (value instanceof Boolean flag) {
      return flag ? 1 : 0;
    }
    return value instanceof Number number ? number.longValue() : otherwise;
  }

  EventRouter router() {
    return router;
  }

  /** A request: a prompt that is continued. What is wrong with it is thrown here, and does no harm to others. */
  public Request submit(String prompt, Map<String, ?> options) {
    byte[] given = Text.bytes("prompt", prompt);
    return submit(options, (engine, set, number) -> Raw.tsr_engine_submit(engine, set, given, number));
  }

  /** The same of token ids. */
  public Request submit(int[] ids, Map<String, ?> options) {
    Native.required("ids", ids);
    return submit(options, (engine, set, number) -> Raw.tsr_engine_submit_tokens(engine, set, ids, number));
  }

  /** The same of a sequence's tokens and then these, where ids is not null. */
  public Request submit(Sequence sequence, int[] ids, Map<String, ?> options) {
    try (Use kept = use(sequence, "sequence")) {
      return submit(options, (engine, set, number) -> Raw.tsr_engine_submit_sequence(engine, set, kept.pointer, ids, number));
    }
  }

  /** The same of a conversation, as {@link Chat} takes it: the request is the assistant's next message. */
  public Request submitMessages(List<?> messages, Map<String, ?> options) {
    return submitMessages(Chat.json(messages), options);
  }

  /** The same of JSON. */
  public Request submitMessages(String messages, Map<String, ?> options) {
    byte[] given = Text.bytes("messages", messages);
    return submit(options, (engine, set, number) -> Raw.tsr_engine_submit_messages(engine, set, given, number));
  }

  private interface Submission {
    long submit(long engine, long options, long[] number);
  }

  private Request submit(Map<String, ?> options, Submission submission) {
    long[] number = new long[1];
    try (Use use = share(); OptionSet set = new OptionSet(options)) {
      use.check(submission.submit(use.pointer, set.pointer, number));
    }
    return new Request(this, number[0], router.add(number[0], texts(options, texts)));
  }

  /**
   * Submits all prompts at once, and waits for their texts, in the order of the prompts. An interrupt, or a
   * {@link Cancellation}, cancels what is left of them, as does a failure. options may be null.
   */
  public List<String> generate(List<String> prompts, Map<String, ?> options) {
    List<CompletableFuture<String>> futures = new ArrayList<>();
    List<String> made = new ArrayList<>();
    try {
      for (String prompt : Native.required("prompts", prompts)) {
        futures.add(submit(prompt, options).text());
      }
      for (CompletableFuture<String> future : futures) {
        made.add(wait(future));
      }
      return made;
    } finally {
      futures.forEach(future -> future.cancel(false));
    }
  }

  private static String wait(CompletableFuture<String> future) {
    for (;;) {
      try {
        Cancellation.check();
        return future.get((long) (EventRouter.SLICE_S * 1e9), TimeUnit.NANOSECONDS);
      } catch (TimeoutException e) {
        // Another look at the cancellation.
      } catch (InterruptedException e) {
        Thread.currentThread().interrupt();
      } catch (CancellationException e) {
        throw TesseraException.of(TesseraException.Code.CANCELLED, "a request was cancelled", e);
      } catch (ExecutionException e) {
        if (e.getCause() instanceof TesseraException thrown) {
          throw TesseraException.of(thrown.code(), thrown.getMessage(), thrown);
        }
        throw TesseraException.of(TesseraException.Code.INTERNAL, String.valueOf(e.getCause()), e);
      }
    }
  }

  /** Waits for the next event of any request; empty where no request is in progress any more. */
  public Optional<Event> next() {
    return next(Double.POSITIVE_INFINITY, true);
  }

  /** The same, also empty where nothing came within {@code timeout}, for which it waits in any case. */
  public Optional<Event> next(Duration timeout) {
    Native.required("timeout", timeout);
    return next(timeout.getSeconds() + timeout.getNano() * 1e-9, false);
  }

  private Optional<Event> next(double timeout, boolean untilIdle) {
    router.chooseAll();
    for (double left = Math.max(timeout, 0);; left -= EventRouter.SLICE_S) {
      Cancellation.check();
      boolean busy = !untilIdle || router.isBusy();
      Event event = router.take(this, busy ? Math.min(left, EventRouter.SLICE_S) : 0);
      if (event != null || !busy || left <= EventRouter.SLICE_S) {
        return Optional.ofNullable(event);
      }
    }
  }

  /** The events of all requests until none is in progress; requests may be submitted meanwhile. */
  public Iterator<Event> events() {
    return new Iterator<>() {
      private Optional<Event> ready = Optional.empty();

      @Override
      public boolean hasNext() {
        if (ready.isEmpty()) {
          ready = Engine.this.next();
        }
        return ready.isPresent();
      }

      @Override
      public Event next() {
        if (!hasNext()) {
          throw new NoSuchElementException("no request is in progress");
        }
        Event event = ready.get();
        ready = Optional.empty();
        return event;
      }
    };
  }

  /** A file descriptor that can be read while events wait, for {@link #next(Duration)}. It stays the engine's. */
  public int descriptor() {
    int[] descriptor = new int[1];
    try (Use use = share()) {
      use.check(Raw.tsr_engine_descriptor(use.pointer, descriptor));
      return descriptor[0];
    }
  }

  /** Ends a request, with {@link Generator.Finish#CANCELLED}. Nothing happens to one that has ended, or never was. Any thread. */
  public void cancel(long request) {
    cancelBy(pointer -> Raw.tsr_engine_cancel(pointer, request));
  }

  /** The logits that a text of a request waits with since its LOGITS: [V], as the model gives them. */
  public float[] logits(long request, int index) {
    long[] count = new long[1];
    float[] items = null;
    try (Use use = share()) {
      do {
        items = new float[Math.toIntExact(count[0])];
        use.check(Raw.tsr_engine_logits(use.pointer, request, index, items, count));
      } while (count[0] > items.length);
      return items;
    }
  }

  /** Lets that text go on with these logits, minus infinity excluding a token; null: as they are. */
  public void answer(long request, int index, float[] logits) {
    try (Use use = share()) {
      use.check(Raw.tsr_engine_answer(use.pointer, request, index, logits));
    }
  }

  /**
   * Takes what a request with the option embed computed, once it has ended: a row with its vector, or with pooling none a row
   * for each token of its prompt. {@link TesseraException.NotFound} otherwise, and the second time.
   */
  public float[][] embedding(long request) {
    long[] count = new long[1];
    long[] width = new long[1];
    try (Use use = share()) {
      use.check(Raw.tsr_engine_embedding_width(use.pointer, width));
      use.check(Raw.tsr_engine_take_embedding(use.pointer, request, null, count));
      float[] values = new float[Math.toIntExact(count[0])];
      use.check(Raw.tsr_engine_take_embedding(use.pointer, request, values, count));
      int columns = Math.toIntExact(width[0]);
      float[][] rows = new float[values.length / columns][];
      for (int i = 0; i < rows.length; ++i) {
        rows[i] = Arrays.copyOfRange(values, i * columns, (i + 1) * columns);
      }
      return rows;
    }
  }

  /**
   * Takes the scores of a request with the option score_from, once it has ended: of the prompt's tokens from that one on.
   * {@link TesseraException.NotFound} otherwise, and the second time.
   */
  public Scorer.Scores scores(long request) {
    long[] count = new long[1];
    try (Use use = share()) {
      use.check(Raw.tsr_engine_take_scores(use.pointer, request, null, null, count));
      float[] logProbs = new float[Math.toIntExact(count[0])];
      byte[] greedy = new byte[logProbs.length];
      use.check(Raw.tsr_engine_take_scores(use.pointer, request, logProbs, greedy, count));
      return Scorer.scores(logProbs, greedy);
    }
  }

  /**
   * The sequence of a text of a request with the option keep, once that text has ended;
   * {@link TesseraException.NotFound} otherwise, and the second time.
   */
  public Sequence sequence(long request, int index) {
    try (Use use = share()) {
      return new Sequence(Native.made(use, out -> Raw.tsr_engine_take_sequence(use.pointer, request, index, out)));
    }
  }

  /**
   * Writes a sequence to a file, with the keys and values that are cached. {@link TesseraException.Unsupported} for one that
   * was computed with an adapter.
   */
  public void saveSequence(Sequence sequence, Path path) {
    byte[] name = Text.path("path", path);
    try (Use kept = use(sequence, "sequence"); Use use = share()) {
      use.check(Raw.tsr_engine_save_sequence(use.pointer, kept.pointer, name));
    }
  }

  /**
   * Reads it back, into the cache as far as that has room. {@link TesseraException.Corrupt} for a file that is damaged,
   * {@link TesseraException.InvalidArgument} for one of another model or other settings.
   */
  public Sequence restoreSequence(Path path) {
    byte[] name = Text.path("path", path);
    try (Use use = share()) {
      return new Sequence(Native.made(use, out -> Raw.tsr_engine_restore_sequence(use.pointer, name, out)));
    }
  }

  /**
   * The number of a LoRA adapter, for the option adapter of requests: a PEFT folder, a GGUF adapter, or a .tsr file with
   * adapters over the engine's model. Others are served meanwhile. The engine needs the option adapters.
   */
  public long loadAdapter(Path path) {
    byte[] name = Text.path("path", path);
    long[] number = new long[1];
    try (Use use = share()) {
      use.check(Raw.tsr_engine_load_adapter(use.pointer, name, number));
      return number[0];
    }
  }

  /** {@link #loadAdapter} of a model's adapter, without a file. The model may be closed afterwards. */
  public long loadAdapterFrom(Model model) {
    long[] number = new long[1];
    try (Use m = use(model, "model"); Use use = share()) {
      use.check(Raw.tsr_engine_load_adapter_from_model(use.pointer, m.pointer, number));
      return number[0];
    }
  }

  /**
   * {@link #loadAdapter} of the adapter that a trainer trains, as it is now, without a file: later steps do not change what the
   * engine has. The engine's model is the trainer's without the adapter. Between steps.
   */
  public long loadAdapterFrom(Trainer trainer) {
    long[] number = new long[1];
    try (Use t = use(trainer, "trainer"); Use use = share()) {
      use.check(Raw.tsr_engine_load_adapter_from_trainer(use.pointer, t.pointer, number));
      return number[0];
    }
  }

  /** Refuses further requests with the adapter; those that use it go on. {@link TesseraException.NotFound} the next time. */
  public void dropAdapter(long adapter) {
    try (Use use = share()) {
      use.check(Raw.tsr_engine_drop_adapter(use.pointer, adapter));
    }
  }

  /** JSON: requests, steps, tokens, what was cached, plan, memory. */
  public String report() {
    try (Use use = share()) {
      return Native.text(use, out -> Raw.tsr_engine_report(use.pointer, out));
    }
  }
}
