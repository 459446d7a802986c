package dev.tessera;

import dev.tessera.raw.Callbacks;
import dev.tessera.raw.Raw;
import java.util.Map;
import java.util.Optional;
import java.util.function.Consumer;

/** Backends, the threads of their kernels, and the log. Several may exist; they share nothing. */
public final class Runtime extends Handle {
  /** How severe a log record is. */
  public enum LogLevel { DEBUG, INFO, WARNING, ERROR }

  /** A record of the log. */
  public record LogRecord(LogLevel level, String text) {}

  /** With all defaults. */
  public Runtime() {
    this(null);
  }

  /** Options: threads, plugin_path, profile, log_level, log_capacity. A plugin that is absent is no failure: {@link #backends}. */
  public Runtime(Map<String, ?> options) {
    super("runtime", Raw::tsr_runtime_free, false, null, make(options));
  }

  /** The same with hooks, which may be null. What they refer to lives as long as the runtime and all that is made from it. */
  public Runtime(Map<String, ?> options, Hooks hooks) {
    super("runtime", Raw::tsr_runtime_free, false, null, hooks == null ? make(options) : make(options, hooks));
  }

  private static long make(Map<String, ?> options) {
    try (OptionSet set = new OptionSet(options)) {
      return Native.made(out -> Raw.tsr_runtime_new(set.pointer, out));
    }
  }

  private static long make(Map<String, ?> options, Hooks hooks) {
    Hooks.Memory memory = hooks.memory();
    try (OptionSet set = new OptionSet(options)) {
      return Native.made(out -> Raw.tsr_raw_runtime_new_with_hooks(
          set.pointer, callbacks(hooks, memory), memory == null ? 0 : 1, out));
    }
  }

  private static Callbacks.Host callbacks(Hooks hooks, Hooks.Memory memory) {
    return new Callbacks.Host() {
      @Override
      public long allocate(long bytes, long alignment) {
        return memory.allocate(bytes, alignment);
      }

      @Override
      public void deallocate(long address, long bytes) {
        memory.deallocate(address, bytes);
      }

      @Override
      public void threadStarted(String role, int number) {
        hooks.threadStarted(role, number);
      }
    };
  }

  /** JSON: the devices here, and why others are unavailable. */
  public String backends() {
    try (Use use = use()) {
      return Native.text(use, out -> Raw.tsr_runtime_backends(use.pointer, out));
    }
  }

  /** Takes the oldest record from the log; empty where there is none. */
  public Optional<LogRecord> nextLog() {
    try (Use use = use()) {
      int[] level = new int[1];
      String text = Native.shortText(use, (buffer, size) -> Raw.tsr_runtime_next_log(use.pointer, level, buffer, size));
      return text == null ? Optional.empty() : Optional.of(record(level[0], text));
    }
  }

  private static LogRecord record(int level, String text) {
    return new LogRecord(LogLevel.values()[Math.max(0, Math.min(level, LogLevel.values().length - 1))], text);
  }

  /**
   * Passes each record to {@code log} as it is made, in addition to the queue of {@link #nextLog}; null ends that. It is called on
   * whatever thread makes the record, by one at a time, and must return soon; it must not call this method, nor wait for another
   * thread that uses the runtime. What it throws is given to the thread's uncaught exception handler, and harms nothing. Once
   * this method returns the one before is not called any more. What {@code log} refers to lives as long as the runtime and all
   * that is made from it: where that is the Runtime itself, until it is closed.
   */
  public void setLog(Consumer<? super LogRecord> log) {
    Callbacks.Log callback = log == null ? null : listener(log);
    try (Use use = use()) {
      use.check(Raw.tsr_raw_runtime_set_log(use.pointer, callback));
    }
  }

  private static Callbacks.Log listener(Consumer<? super LogRecord> log) {
    return (level, text) -> log.accept(record(level, Text.string(text)));
  }

  /**
   * Shares the cores between inference and training by turns: option inference_share, 0 to 1, is inference's share while both have work;
   * null ends that. A step of inference waits for one micro-batch of training at most. Results are the same bits.
   */
  public void setShare(Map<String, ?> options) {
    try (Use use = use(); OptionSet set = new OptionSet(options)) {
      use.check(Raw.tsr_runtime_set_share(use.pointer, set.pointer));
    }
  }

  /** What is made later with this runtime takes turns with that of {@code other}: one share for both. */
  public void joinShare(Runtime other) {
    try (Use use = use(); Use of = use(other, "other")) {
      use.check(Raw.tsr_runtime_join_share(use.pointer, of.pointer));
    }
  }

  /** JSON: the turns of inference and of training, their seconds with the cores and their CPU seconds. */
  public String shareReport() {
    try (Use use = use()) {
      return Native.text(use, out -> Raw.tsr_runtime_share(use.pointer, out));
    }
  }

  /** JSON: the number of this process and how many run together, and of their machines (option processes). */
  public String world() {
    try (Use use = use()) {
      return Native.text(use, out -> Raw.tsr_runtime_world(use.pointer, out));
    }
  }

  /**
   * Ends calls in progress on other threads that plan, load or measure with this runtime (new {@link Plan}, {@link Trainer},
   * {@link Generator}, ...) with {@link TesseraException.Cancelled}.
   */
  public void cancel() {
    cancelBy(Raw::tsr_runtime_cancel);
  }
}
