package dev.tessera;

import dev.tessera.raw.Raw;
import java.nio.file.Path;
import java.util.Map;

/**
 * The course of a training run, in files: JSON lines, TensorBoard's events, an HTML page. {@link #step} and {@link #evaluation}
 * use the trainer, which must not be closed before.
 */
public final class RunLog extends Handle {
  private final Trainer trainer;

  /**
   * Opens the files that the options name: metrics, tensorboard, report; report_seconds, steps, model, data, settings. Where
   * a trainer resumed, later steps in the files are dropped.
   */
  public RunLog(Trainer trainer, Map<String, ?> options) {
    super("run log", Raw::tsr_run_log_free, true, null, make(trainer, options));
    this.trainer = trainer;
  }

  private static long make(Trainer trainer, Map<String, ?> options) {
    try (Use use = use(trainer, "trainer"); OptionSet set = new OptionSet(options)) {
      return Native.made(use, out -> Raw.tsr_run_log_new(use.pointer, set.pointer, out));
    }
  }

  /** Adds the trainer's last step: once after each. Later calls log for that step. */
  public void step() {
    try (Use using = use(trainer, "trainer"); Use use = use()) {
      using.check(Raw.tsr_run_log_step(use.pointer));
    }
  }

  /** Adds a held-out loss, nats a token. */
  public void evaluation(double loss) {
    evaluation(loss, Double.NaN);
  }

  /** Adds a held-out loss, and the share of tokens that are predicted; NaN where it is not known. */
  public void evaluation(double loss, double accuracy) {
    try (Use using = use(trainer, "trainer"); Use use = use()) {
      using.check(Raw.tsr_run_log_evaluation(use.pointer, loss, accuracy));
    }
  }

  /** Adds any other number by its name: "rewards/margin". */
  public void value(String name, double value) {
    byte[] bytes = Text.name("name", name);
    try (Use use = use()) {
      use.check(Raw.tsr_run_log_value(use.pointer, bytes, value));
    }
  }

  /** Adds a prompt and the model's text after it; the first 64 KiB of each. */
  public void sample(String prompt, String text) {
    byte[] before = Text.name("prompt", prompt);
    byte[] after = Text.bytes("text", text);
    try (Use use = use()) {
      use.check(Raw.tsr_run_log_sample(use.pointer, before, after));
    }
  }

  /** Adds a checkpoint that was written. */
  public void checkpoint(Path path) {
    byte[] name = Text.path("path", path);
    try (Use use = use()) {
      use.check(Raw.tsr_run_log_checkpoint(use.pointer, name));
    }
  }

  /** JSON: the last and the best losses, speed, the time that is left, and the physical limit of a step. */
  public String summary() {
    try (Use use = use()) {
      return Native.text(use, out -> Raw.tsr_run_log_summary(use.pointer, out));
    }
  }

  /** Completes the files of a run that finished. */
  public void finish() {
    finish("finished");
  }

  /** Completes the files. outcome says how the run ended. */
  public void finish(String outcome) {
    byte[] name = Text.name("outcome", outcome);
    try (Use use = use()) {
      use.check(Raw.tsr_run_log_finish(use.pointer, name));
    }
  }
}
