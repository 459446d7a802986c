package dev.tessera;

import dev.tessera.raw.Raw;
import java.nio.file.Path;
import java.util.Map;
import java.util.function.DoubleConsumer;
import java.util.function.LongSupplier;

/** Trains a model on all devices given; the header lists its options under tsr_trainer_new. The model stays as it is until {@link #store}. */
public final class Trainer extends Handle {
  /**
   * The outcome of one optimizer step; step 1 is the first. The rewards are of a preference loss (header: tsr_step), else 0.
   */
  public record Step(long step, double loss, double gradNorm, double learningRate, double seconds, double chosenReward,
      double rejectedReward, double rewardMargin, double rewardAccuracy) {
    static Step of(long[] number, double[] values) {
      return new Step(number[0], values[0], values[1], values[2], values[3], values[4], values[5], values[6], values[7]);
    }
  }

  /**
   * Plans, and prepares the devices. dataset may be null for a graph with a loss of its own, whose inputs are fed. options
   * may be null.
   */
  public Trainer(Runtime runtime, Model model, Dataset dataset, Map<String, ?> options) {
    super("trainer", Raw::tsr_trainer_free, true, source(model), make(runtime, model, dataset, options));
  }

  private static long make(Runtime runtime, Model model, Dataset dataset, Map<String, ?> options) {
    try (Use r = use(runtime, "runtime");
        Use m = use(model, "model");
        Use d = optional(dataset);
        OptionSet set = new OptionSet(options)) {
      return Native.made(m, out -> Cancellation.guard(runtime::cancel,
          () -> Raw.tsr_trainer_new(r.pointer, m.pointer, d.pointer, set.pointer, out)));
    }
  }

  /**
   * The same in steps: progress, which may be null, hears the share that is done, of what a preference loss's reference says
   * above all, and an interrupt or a {@link Cancellation} ends it.
   */
  public Trainer(Runtime runtime, Model model, Dataset dataset, Map<String, ?> options, DoubleConsumer progress) {
    super("trainer", Raw::tsr_trainer_free, true, source(model), prepare(runtime, model, dataset, options, progress));
  }

  private static long prepare(Runtime runtime, Model model, Dataset dataset, Map<String, ?> options,
      DoubleConsumer progress) {
    try (Use r = use(runtime, "runtime");
        Use m = use(model, "model");
        Use d = optional(dataset);
        OptionSet set = new OptionSet(options);
        Work preparation = new Work(source(model),
            Native.made(m, out -> Raw.tsr_trainer_begin(r.pointer, m.pointer, d.pointer, set.pointer, out)));
        Use use = preparation.use()) {
      Work.run(use, null, progress);
      return Native.made(use, out -> Raw.tsr_trainer_finish(use.pointer, out));
    }
  }

  private void guarded(Use use, LongSupplier call) {
    use.check(Cancellation.guard(this::cancel, call));
  }

  /** Sets an input of a graph of one's own, which keeps its value until fed again. Copies. */
  public void feed(String input, Tensor value) {
    byte[] name = Text.name("input", input);
    try (Use use = use(); Use tensor = use(value, "value")) {
      use.check(Raw.tsr_trainer_feed(use.pointer, name, tensor.pointer));
    }
  }

  /**
   * Makes one optimizer step. Where it is cancelled the values on the devices are lost: {@link #resume}, or close.
   * {@link TesseraException.NotFinite} where a loss or gradient is not finite; such a step is left out.
   */
  public Step step() {
    long[] number = new long[1];
    double[] values = new double[8];
    try (Use use = use()) {
      guarded(use, () -> Raw.tsr_raw_trainer_step(use.pointer, number, values));
    }
    return Step.of(number, values);
  }

  /** The rate of the next step and of those after it; below 0 the schedule's again. */
  public void setLr(double lr) {
    try (Use use = use()) {
      use.check(Raw.tsr_trainer_set_lr(use.pointer, lr));
    }
  }

  /**
   * Rows of {@code seq} tokens for a part of a step, one after another: tokens, labels (what is to follow, or -1), positions,
   * segments, weights, log probabilities when the labels were drawn, and advantages. All but the first two may be null; the
   * header says the rest under tsr_batch.
   */
  public record Batch(int seq, int[] tokens, int[] labels, int[] positions, int[] segments, float[] weights,
      float[] samplerLogprobs, float[] advantages) {
    /** Checks that all arrays are as long as the tokens, which are rows of seq. */
    public Batch {
      Native.required("tokens", tokens);
      Native.required("labels", labels);
      if (seq < 1 || tokens.length == 0 || tokens.length % seq != 0) {
        throw TesseraException.invalid("the tokens are no rows of " + seq);
      }
      for (Object values : new Object[] {labels, positions, segments, weights, samplerLogprobs, advantages}) {
        if (values != null && java.lang.reflect.Array.getLength(values) != tokens.length) {
          throw TesseraException.invalid("the arrays of a batch are as long as its tokens, or null");
        }
      }
    }

    /** Of tokens and labels alone. */
    public Batch(int seq, int[] tokens, int[] labels) {
      this(seq, tokens, labels, null, null, null, null, null);
    }

    int rows() {
      return tokens.length / seq;
    }
  }

  /** What an accumulation gives: its loss, and the log probabilities of the labels. */
  public record Loss(double loss, float[] logprobs) {}

  /** Log probabilities of a batch's labels, 0 for negative ones. Parts of steps need the option losses. */
  public float[] forward(Batch batch) {
    Native.required("batch", batch);
    float[] items = new float[batch.tokens.length];
    try (Use use = use()) {
      guarded(use, () -> Raw.tsr_raw_trainer_forward(use.pointer, batch.rows(), batch.seq, batch.tokens, batch.labels,
          batch.positions, batch.segments, items, new long[1]));
    }
    return items;
  }

  /**
   * Adds the gradients of a loss: cross_entropy, importance_sampling, ppo, cispo, dro or gspo. options may be null: scale,
   * eps_low, eps_high, beta.
   */
  public Loss forwardBackward(Batch batch, String loss, Map<String, ?> options) {
    Native.required("batch", batch);
    float[] items = new float[batch.tokens.length];
    double[] value = new double[1];
    byte[] name = Text.name("loss", loss);
    try (Use use = use(); OptionSet set = new OptionSet(options)) {
      guarded(use, () -> Raw.tsr_raw_trainer_forward_backward(use.pointer, batch.rows(), batch.seq, batch.tokens,
          batch.labels, batch.positions, batch.segments, batch.weights, batch.samplerLogprobs, batch.advantages, name,
          set.pointer, value, items, new long[1]));
    }
    return new Loss(value[0], items);
  }

  /** Adds the gradients of a loss of one's own, given its derivatives by the log probabilities of the labels. */
  public void backward(Batch batch, float[] gradients) {
    Native.required("batch", batch);
    Native.required("gradients", gradients);
    try (Use use = use()) {
      guarded(use, () -> Raw.tsr_raw_trainer_backward(use.pointer, batch.rows(), batch.seq, batch.tokens, batch.labels,
          batch.positions, batch.segments, gradients));
    }
  }

  /**
   * The update from the gradients added up since the last one. options, of this step alone, may be null: lr, clip_norm, and
   * the settings of the optimizer (beta1, beta2, eps, weight_decay, momentum).
   */
  public Step optimizerStep(Map<String, ?> options) {
    long[] number = new long[1];
    double[] values = new double[8];
    try (Use use = use(); OptionSet set = new OptionSet(options)) {
      guarded(use, () -> Raw.tsr_raw_trainer_optimizer_step(use.pointer, set.pointer, number, values));
    }
    return Step.of(number, values);
  }

  /** Mean loss over the dataset's evaluation part, or of the inputs fed. */
  public double evaluate() {
    double[] loss = new double[1];
    try (Use use = use()) {
      guarded(use, () -> Raw.tsr_trainer_evaluate(use.pointer, loss));
    }
    return loss[0];
  }

  /**
   * An evaluation with all its numbers, as JSON: loss, perplexity, accuracy (the share of labels that are predicted),
   * labels, correct, seconds.
   */
  public String evaluateAll() {
    try (Use use = use()) {
      return Native.text(use, out -> Cancellation.guard(this::cancel, () -> Raw.tsr_trainer_evaluate_all(use.pointer, out)));
    }
  }

  /** Replaces the checkpoint folder, at once or not at all. */
  public void save(Path folder) {
    byte[] name = Text.path("folder", folder);
    try (Use use = use()) {
      guarded(use, () -> Raw.tsr_trainer_save(use.pointer, name));
    }
  }

  /**
   * The same in steps: progress, which may be null, hears the share that is done, and an interrupt, a {@link Cancellation} or
   * {@link #cancel} ends it, with the folder as it was. progress must not use the trainer.
   */
  public void save(Path folder, DoubleConsumer progress) {
    byte[] name = Text.path("folder", folder);
    Cancellation.check();
    try (Use use = use();
        Work saving = new Work(source(), Native.made(use, out -> Raw.tsr_checkpoint_begin(use.pointer, name, out)));
        Use work = saving.use()) {
      Work.run(work, null, progress);
      work.check(Raw.tsr_checkpoint_finish(work.pointer));
    }
  }

  /**
   * Copies a checkpoint's contents to host memory, and begins to write them to the folder on a thread of its own; the trainer
   * is free when this returns. notes, which may be null: texts and numbers that {@link #checkpointInfo} gives back as texts.
   */
  public Saving startSave(Path folder, Map<String, ?> notes) {
    byte[] name = Text.path("folder", folder);
    try (Use use = use(); OptionSet set = new OptionSet(notes)) {
      return new Saving(Native.made(use, out -> Cancellation.guard(this::cancel,
          () -> Raw.tsr_checkpoint_begin_snapshot(use.pointer, name, set.pointer, out))));
    }
  }

  /** Throws where {@link #save(Path)} could not write {@code folder} now, before the first step. */
  public static void checkFolder(Path folder) {
    TesseraException.check(Raw.tsr_trainer_check_folder(Text.path("folder", folder)));
  }

  /** Goes on from a checkpoint. */
  public void resume(Path folder) {
    byte[] name = Text.path("folder", folder);
    try (Use use = use()) {
      guarded(use, () -> Raw.tsr_trainer_resume(use.pointer, name));
    }
  }

  /** The same as {@link #save(Path)}; with the option optimizer 0 it saves parameters alone. options may be null. */
  public void saveState(Path folder, Map<String, ?> options) {
    byte[] name = Text.path("folder", folder);
    try (Use use = use(); OptionSet set = new OptionSet(options)) {
      guarded(use, () -> Raw.tsr_trainer_save_state(use.pointer, name, set.pointer));
    }
  }

  /**
   * The same as {@link #resume}; with the option optimizer 0 it takes the parameters alone, of any checkpoint, and the training
   * begins with them. options may be null.
   */
  public void loadState(Path folder, Map<String, ?> options) {
    byte[] name = Text.path("folder", folder);
    try (Use use = use(); OptionSet set = new OptionSet(options)) {
      guarded(use, () -> Raw.tsr_trainer_load_state(use.pointer, name, set.pointer));
    }
  }

  /** JSON: what a checkpoint holds. */
  public static String checkpointInfo(Path folder) {
    byte[] name = Text.path("folder", folder);
    return Native.text(null, out -> Raw.tsr_checkpoint_info(name, out));
  }

  /** Writes the present values of all parameters into a model. */
  public void store(Model model) {
    try (Use use = use(); Use m = use(model, "model")) {
      use.check(Raw.tsr_trainer_store(use.pointer, m.pointer));
    }
  }

  /** Writes the .tsr file that {@link #store} and then save would write; the model stays as it is. Options: compress. */
  public void saveModel(Model model, Path path, Map<String, ?> options) {
    byte[] name = Text.path("path", path);
    try (Use use = use(); Use m = use(model, "model"); OptionSet set = new OptionSet(options)) {
      guarded(use, () -> Raw.tsr_trainer_save_model(use.pointer, m.pointer, name, set.pointer));
    }
  }

  /**
   * The same in steps, as {@link #save(Path, DoubleConsumer)}. Options: those of
   * {@link ModelFiles#convert(Model, Path, Map, DoubleConsumer)}. JSON: what was written.
   */
  public String saveModel(Model model, Path path, Map<String, ?> options, DoubleConsumer progress) {
    byte[] name = Text.path("path", path);
    try (Use use = use(); Use m = use(model, "model"); OptionSet set = new OptionSet(options)) {
      return ModelFiles.convert(model.source(), Native.made(use,
          made -> Raw.tsr_conversion_begin_for_trainer(use.pointer, m.pointer, name, set.pointer, made)), progress);
    }
  }

  /** A parameter or optimizer state ("block.0.q.weight.m"). */
  public Tensor read(String name) {
    byte[] given = Text.name("name", name);
    try (Use use = use()) {
      return new Tensor(null, Native.made(use, out -> Raw.tsr_trainer_read(use.pointer, given, out)));
    }
  }

  /** Sets one. */
  public void write(String name, Tensor value) {
    byte[] given = Text.name("name", name);
    try (Use use = use(); Use tensor = use(value, "value")) {
      use.check(Raw.tsr_trainer_write(use.pointer, given, tensor.pointer));
    }
  }

  /** JSON: plan, memory, communication. */
  public String report() {
    try (Use use = use()) {
      return Native.text(use, out -> Raw.tsr_trainer_report(use.pointer, out));
    }
  }

  /** What ran since the last call, in Chrome's trace format; needs the option trace. */
  public String trace() {
    try (Use use = use()) {
      return Native.text(use, out -> Raw.tsr_trainer_take_trace(use.pointer, out));
    }
  }

  /** Its plan. */
  public Plan plan() {
    try (Use use = use()) {
      return new Plan(Native.made(use, out -> Raw.tsr_trainer_plan(use.pointer, out)));
    }
  }

  /** Ends the call in progress on another thread with {@link TesseraException.Cancelled}. */
  public void cancel() {
    cancelBy(Raw::tsr_trainer_cancel);
  }
}
