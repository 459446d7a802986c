package dev.tessera;

import dev.tessera.raw.Raw;
import java.util.Map;
import java.util.Optional;

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

  private static long make(Map<String, ?> options) {
    try (OptionSet set = new OptionSet(options)) {
      return Native.made(out -> Raw.tsr_runtime_new(set.pointer, out));
    }
  }

  /** JSON: what can be used here and, where something cannot, why. */
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
      return text == null ? Optional.empty()
          : Optional.of(new LogRecord(LogLevel.values()[Math.max(0, Math.min(level[0], 3))], text));
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
