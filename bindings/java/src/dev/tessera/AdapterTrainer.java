package dev.tessera;

import dev.tessera.raw.Raw;
import java.nio.file.Path;
import java.util.Map;

/**
 * Trains many low-rank adapters in the same batches over one frozen model; the header says more under "adapters side by side".
 *
 * <pre>{@code
 * long adapter = trainer.add(Map.of("rank", 8));
 * trainer.forwardBackward(adapter, batch, "cross_entropy", null);
 * trainer.update(adapter, Map.of("lr", 1e-4));
 * for (Result done = trainer.next(); done != null; done = trainer.next()) System.out.println(done.json());
 * }</pre>
 */
public final class AdapterTrainer extends Handle {
  /** The result of a pass, as the header describes it under tsr_adapter_trainer_next, and the log probabilities of its labels. */
  public record Result(String json, float[] logprobs) {}

  /** A call with the pointers of this trainer and of options, which tells a number. */
  private interface Call {
    long call(long trainer, long options, long[] out);
  }

  /** Plans, and prepares the devices. options: those of a {@link Trainer} without a dataset, and adapters, adapter_rank, adapter_weights. */
  public AdapterTrainer(Runtime runtime, Model model, Map<String, ?> options) {
    super("adapter trainer", Raw::tsr_adapter_trainer_free, true, source(model), make(runtime, model, options));
  }

  private static long make(Runtime runtime, Model model, Map<String, ?> options) {
    try (Use r = use(runtime, "runtime"); Use m = use(model, "model"); OptionSet set = new OptionSet(options)) {
      return Native.made(m, out -> Cancellation.guard(runtime::cancel,
          () -> Raw.tsr_adapter_trainer_new(r.pointer, m.pointer, set.pointer, out)));
    }
  }

  private long number(Map<String, ?> options, Call call) {
    long[] out = new long[1];
    try (Use use = use(); OptionSet set = new OptionSet(options)) {
      use.check(call.call(use.pointer, set.pointer, out));
    }
    return out[0];
  }

  /** Adds an adapter and gives its number. options may be null: those of {@link Model#withAdapters}, and seed. */
  public long add(Map<String, ?> options) {
    return number(options, (c, set, out) -> Raw.tsr_adapter_trainer_add(c, set, out));
  }

  /** Ends an adapter, with its passes that wait. */
  public void drop(long adapter) {
    try (Use use = use()) {
      use.check(Raw.tsr_adapter_trainer_drop(use.pointer, adapter));
    }
  }

  /** Queues a pass that gives the log probabilities of a batch's labels, and gives the pass's number. */
  public long forward(long adapter, Trainer.Batch batch) {
    Native.required("batch", batch);
    return number(null, (c, set, out) -> Raw.tsr_raw_adapter_trainer_forward(c, adapter, batch.rows(), batch.seq(),
        batch.tokens(), batch.labels(), batch.positions(), batch.segments(), out));
  }

  /** Queues a pass that adds the gradients of a loss, as {@link Trainer#forwardBackward} does. */
  public long forwardBackward(long adapter, Trainer.Batch batch, String loss, Map<String, ?> options) {
    Native.required("batch", batch);
    byte[] name = Text.name("loss", loss);
    return number(options, (c, set, out) -> Raw.tsr_raw_adapter_trainer_forward_backward(c, adapter, batch.rows(),
        batch.seq(), batch.tokens(), batch.labels(), batch.positions(), batch.segments(), batch.weights(),
        batch.samplerLogprobs(), batch.advantages(), name, set, out));
  }

  /** Queues a pass that adds the gradients of a loss of one's own, as {@link Trainer#backward} does. */
  public long backward(long adapter, Trainer.Batch batch, float[] gradients) {
    Native.required("batch", batch);
    Native.required("gradients", gradients);
    return number(null, (c, set, out) -> Raw.tsr_raw_adapter_trainer_backward(c, adapter, batch.rows(), batch.seq(),
        batch.tokens(), batch.labels(), batch.positions(), batch.segments(), gradients, out));
  }

  /** Queues an adapter's optimizer step. options may be null: those of {@link Trainer#optimizerStep}. */
  public long update(long adapter, Map<String, ?> options) {
    return number(options, (c, set, out) -> Raw.tsr_adapter_trainer_update(c, adapter, set, out));
  }

  /** Drops a pass that is not finished. */
  public void cancelPass(long pass) {
    try (Use use = use()) {
      use.check(Raw.tsr_adapter_trainer_cancel_pass(use.pointer, pass));
    }
  }

  /** Computes until a pass is finished; null: none waits. */
  public Result next() {
    try (Use use = use()) {
      String json = Native.text(use,
          out -> Cancellation.guard(this::cancel, () -> Raw.tsr_adapter_trainer_next(use.pointer, out)));
      if (json.isEmpty()) {
        return null;
      }
      long[] count = new long[1];
      use.check(Raw.tsr_adapter_trainer_logprobs(use.pointer, null, count));
      float[] logprobs = new float[Math.toIntExact(count[0])];
      use.check(Raw.tsr_adapter_trainer_logprobs(use.pointer, logprobs, count));
      return new Result(json, logprobs);
    }
  }

  /** Writes the checkpoint of one adapter, which a {@link Trainer} of the model with it alone reads, too. */
  public void save(long adapter, Path folder) {
    byte[] name = Text.path("folder", folder);
    try (Use use = use()) {
      use.check(Raw.tsr_adapter_trainer_save(use.pointer, adapter, name));
    }
  }

  /**
   * Adds the adapter of a checkpoint, with its optimizer state and step; with the option optimizer 0 its values alone, of any
   * optimizer, from step 0. options may be null.
   */
  public long load(Path folder, Map<String, ?> options) {
    byte[] name = Text.path("folder", folder);
    return number(options, (c, set, out) -> Raw.tsr_adapter_trainer_load(c, name, set, out));
  }

  /** The model with an adapter's present values. */
  public Model model(long adapter) {
    try (Use use = use()) {
      return new Model(source(this), Native.made(use, out -> Raw.tsr_adapter_trainer_model(use.pointer, adapter, out)));
    }
  }

  /** Slots, adapters, counts of tokens and memory, as JSON. */
  public String report() {
    try (Use use = use()) {
      return Native.text(use, out -> Raw.tsr_adapter_trainer_report(use.pointer, out));
    }
  }

  /** Any thread: ends the run in progress. */
  public void cancel() {
    cancelBy(Raw::tsr_adapter_trainer_cancel);
  }
}
