package dev.tessera;

import dev.tessera.raw.Raw;
import java.util.Map;

/** A program in memory, with state of its own. */
public final class Session extends Handle {
  /** Options: measure_memory, trace, offload_folder, host_memory_limit, watchdog. */
  public Session(Program program, Map<String, ?> options) {
    super("session", Raw::tsr_session_free, true, null, make(program, options));
  }

  private static long make(Program program, Map<String, ?> options) {
    try (Use use = use(program, "program"); OptionSet set = new OptionSet(options)) {
      return Native.made(out -> Raw.tsr_session_new(use.pointer, set.pointer, out));
    }
  }

  /** Sets a parameter, constant or state. Copies. */
  public void write(String name, Tensor value) {
    byte[] given = Text.name("name", name);
    try (Use use = use(); Use tensor = use(value, "value")) {
      use.check(Raw.tsr_session_write(use.pointer, given, tensor.pointer));
    }
  }

  /** The value of a parameter, constant or state. */
  public Tensor read(String name) {
    byte[] given = Text.name("name", name);
    try (Use use = use()) {
      return new Tensor(null, Native.made(use, out -> Raw.tsr_session_read(use.pointer, given, out)));
    }
  }

  /** All parameters from a model. */
  public void writeModel(Model model) {
    try (Use use = use(); Use m = use(model, "model")) {
      m.check(Raw.tsr_session_write_model(use.pointer, m.pointer));
    }
  }

  /** Sets an input, which keeps its value until fed again. Copies. */
  public void feed(String entry, String input, Tensor value) {
    byte[] name = Text.name("entry", entry);
    byte[] given = Text.name("input", input);
    try (Use use = use(); Use tensor = use(value, "value")) {
      use.check(Raw.tsr_session_feed(use.pointer, name, given, tensor.pointer));
    }
  }

  /** Runs an entry. */
  public void run(String entry) {
    byte[] name = Text.name("entry", entry);
    try (Use use = use()) {
      use.check(Cancellation.guard(this::cancel, () -> Raw.tsr_session_run(use.pointer, name)));
    }
  }

  /** An output of the entry's last run. */
  public Tensor fetch(String entry, String output) {
    byte[] name = Text.name("entry", entry);
    byte[] wanted = Text.name("output", output);
    try (Use use = use()) {
      return new Tensor(null, Native.made(use, out -> Raw.tsr_session_fetch(use.pointer, name, wanted, out)));
    }
  }

  /** Ends the run in progress on another thread with {@link TesseraException.Cancelled}. */
  public void cancel() {
    cancelBy(Raw::tsr_session_cancel);
  }

  /** After a failed or cancelled run: state must be written again. */
  public void restore() {
    try (Use use = use()) {
      use.check(Raw.tsr_session_restore(use.pointer));
    }
  }

  /** JSON: memory and communication. */
  public String report() {
    try (Use use = use()) {
      return Native.text(use, out -> Raw.tsr_session_report(use.pointer, out));
    }
  }

  /** What ran since the last call, in Chrome's trace format; needs the option trace. */
  public String trace() {
    try (Use use = use()) {
      return Native.text(use, out -> Raw.tsr_session_take_trace(use.pointer, out));
    }
  }

  /**
   * JSON: the kernels of a trace, of a session, trainer or generator, with the time that each would take if nothing but memory or products bound
   * it. Options: entry, bytes_per_s, flops_per_s.
   */
  public static String kernelTimes(String trace, Map<String, ?> options) {
    byte[] given = Text.bytes("trace", trace);
    try (OptionSet set = new OptionSet(options)) {
      return Native.text(null, out -> Raw.tsr_trace_kernels(given, set.pointer, out));
    }
  }
}
