package dev.tessera;

import dev.tessera.raw.Raw;
import java.nio.file.Path;
import java.util.Map;
import java.util.function.DoubleConsumer;

/** Measures the devices of a backend and makes the profile that prices plans. Run it while nothing else runs. */
public final class Calibration extends Handle {
  private final Runtime runtime;

  /** Options: devices, seconds. */
  public Calibration(Runtime runtime, Map<String, ?> options) {
    super("calibration", Raw::tsr_calibration_free, true, null, make(runtime, options));
    this.runtime = runtime;
  }

  private static long make(Runtime runtime, Map<String, ?> options) {
    try (Use use = use(runtime, "runtime"); OptionSet set = new OptionSet(options)) {
      return Native.made(out ->
          Cancellation.guard(runtime::cancel, () -> Raw.tsr_calibration_new(use.pointer, set.pointer, out)));
    }
  }

  /** Measures all. progress, which may be null, hears the share that is done after every piece. */
  public void run(DoubleConsumer progress) {
    try (Use use = use()) {
      Native.steps(use, runtime::cancel, Raw::tsr_calibration_step, progress);
    }
  }

  /** Measures the next piece; the share that is done, 1 when all is. */
  public double step() {
    double[] done = new double[1];
    try (Use use = use()) {
      use.check(Cancellation.guard(runtime::cancel, () -> Raw.tsr_calibration_step(use.pointer, done)));
    }
    return done[0];
  }

  /** What is measured next, for people; empty when all is done. */
  public String next() {
    try (Use use = use()) {
      String next = Native.shortText(use, (buffer, size) -> Raw.tsr_calibration_next(use.pointer, buffer, size));
      return next == null ? "" : next;
    }
  }

  /** The profile's text, once all is done. */
  public String text() {
    try (Use use = use()) {
      return Native.text(use, out -> Raw.tsr_calibration_text(use.pointer, out));
    }
  }

  /** Writes it to {@link #defaultPath}, where profile "auto" looks. */
  public void save() {
    try (Use use = use()) {
      use.check(Raw.tsr_calibration_save(use.pointer, null));
    }
  }

  /** Writes it to a file. */
  public void save(Path path) {
    byte[] name = Text.path("path", path);
    try (Use use = use()) {
      use.check(Raw.tsr_calibration_save(use.pointer, name));
    }
  }

  /** Where {@link #save()} writes. */
  public Path defaultPath() {
    try (Use use = use()) {
      return Path.of(Native.shortText(use, (buffer, size) -> Raw.tsr_calibration_default_path(use.pointer, buffer, size)));
    }
  }
}
