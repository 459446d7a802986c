package dev.tessera;

import dev.tessera.raw.Raw;
import java.nio.file.Path;
import java.util.Map;
import java.util.function.DoubleConsumer;

/** The measured profile of a backend's devices, which prices plans. Immutable. */
public final class Calibration extends Handle {
  /**
   * Measures for about the option seconds; run it while nothing else runs. progress, which may be null, hears the share that is
   * done after every piece; an interrupt or a {@link Cancellation} ends it. Options: devices, seconds.
   */
  public Calibration(Runtime runtime, Map<String, ?> options, DoubleConsumer progress) {
    super("calibration", Raw::tsr_calibration_free, false, null, measure(runtime, options, progress));
  }

  private static long measure(Runtime runtime, Map<String, ?> options, DoubleConsumer progress) {
    try (Use r = use(runtime, "runtime");
        OptionSet set = new OptionSet(options);
        Work work = new Work(Native.made(out ->
            Cancellation.guard(runtime::cancel, () -> Raw.tsr_calibration_begin(r.pointer, set.pointer, out))));
        Use use = work.use()) {
      Work.run(use, runtime::cancel, progress);
      return Native.made(use, out -> Raw.tsr_calibration_finish(use.pointer, out));
    }
  }

  /** The profile's text. */
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
