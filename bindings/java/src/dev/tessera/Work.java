package dev.tessera;

import dev.tessera.raw.Callbacks;
import dev.tessera.raw.Raw;
import java.util.function.DoubleConsumer;

/** Long work of the library, inside one call of this package: begun, stepped to its end, finished, and freed, which cancels it. */
final class Work extends Handle {
  Work(long pointer) {
    this(null, pointer);
  }

  /** source: what the values of a model that it works on are read from, or null. */
  Work(Callbacks.Source source, long pointer) {
    super("work", Raw::tsr_work_free, true, source, pointer);
  }

  /**
   * Steps work to its end. progress, which may be null, hears the share that is done after every step; cancel, which may be null
   * where steps are short, ends one.
   */
  static void run(Use work, Runnable cancel, DoubleConsumer progress) {
    int[] done = new int[1];
    do {
      Cancellation.check();
      work.check(cancel == null ? Raw.tsr_work_step(work.pointer, done)
          : Cancellation.guard(cancel, () -> Raw.tsr_work_step(work.pointer, done)));
      if (progress != null) {
        progress.accept(fraction(work));
      }
    } while (done[0] == 0);
  }

  private static double fraction(Use work) {
    double[] fraction = new double[1];
    work.check(Raw.tsr_raw_work_progress(work.pointer, fraction, new long[2], new byte[2][]));
    return fraction[0];
  }
}
