package dev.tessera;

import dev.tessera.raw.Raw;
import java.util.function.DoubleConsumer;

/**
 * A checkpoint that is written from a copy of a trainer's values, while the trainer goes on ({@link Trainer#startSave}). One
 * thread at a time, which may be another than the trainer's. Closed before {@link #finish}, it gives up what was written, and
 * the folder is as it was.
 */
public final class Saving extends Handle {
  Saving(long pointer) {
    super("saving", Raw::tsr_work_free, true, null, pointer);
  }

  /**
   * Waits until all is written, and puts the checkpoint in its place. progress, which may be null, hears the share that is
   * done; an interrupt or a {@link Cancellation} ends the wait alone.
   */
  public void finish(DoubleConsumer progress) {
    try (Use use = use()) {
      Work.run(use, null, progress);
      use.check(Raw.tsr_checkpoint_finish(use.pointer));
    }
  }
}
