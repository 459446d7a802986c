package dev.tessera;

import dev.tessera.raw.Raw;
import java.nio.file.Path;
import java.util.Map;
import java.util.function.DoubleConsumer;

/** Token ids cut into samples. Immutable. Options: seq, eval_fraction, shuffle, seed, and of texts special. */
public final class Dataset extends Handle {
  private Dataset(long pointer) {
    super("dataset", Raw::tsr_dataset_free, false, null, pointer);
  }

  /** Reads and tokenises a text file. */
  public static Dataset open(Path path, Tokenizer tokenizer, Map<String, ?> options) {
    byte[] name = Text.path("path", path);
    try (Use use = use(tokenizer, "tokenizer"); OptionSet set = new OptionSet(options)) {
      return new Dataset(Native.made(out -> Raw.tsr_dataset_new_file(name, use.pointer, set.pointer, out)));
    }
  }

  /**
   * The same in steps: progress, which may be null, hears the share that is done, and an interrupt or a {@link Cancellation}
   * ends it.
   */
  public static Dataset open(Path path, Tokenizer tokenizer, Map<String, ?> options, DoubleConsumer progress) {
    byte[] name = Text.path("path", path);
    try (Use use = use(tokenizer, "tokenizer"); OptionSet set = new OptionSet(options)) {
      return read(Native.made(out -> Raw.tsr_reading_new_file(0, name, use.pointer, set.pointer, out)), progress);
    }
  }

  /** Tokenises a text. */
  public static Dataset ofText(String text, Tokenizer tokenizer, Map<String, ?> options) {
    byte[] given = Text.bytes("text", text);
    try (Use use = use(tokenizer, "tokenizer"); OptionSet set = new OptionSet(options)) {
      return new Dataset(Native.made(out -> Raw.tsr_dataset_new_text(given, use.pointer, set.pointer, out)));
    }
  }

  /** The same in steps, as those of a file. */
  public static Dataset ofText(String text, Tokenizer tokenizer, Map<String, ?> options, DoubleConsumer progress) {
    byte[] given = Text.bytes("text", text);
    try (Use use = use(tokenizer, "tokenizer"); OptionSet set = new OptionSet(options)) {
      return read(Native.made(out -> Raw.tsr_reading_new_text(0, given, use.pointer, set.pointer, out)), progress);
    }
  }

  private static Dataset read(long pointer, DoubleConsumer progress) {
    try (Work reading = new Work("reading", Raw::tsr_reading_free, pointer); Use use = reading.use()) {
      Native.steps(use, null, Raw::tsr_reading_step, progress);
      return new Dataset(Native.made(out -> Raw.tsr_reading_finish(use.pointer, out)));
    }
  }

  /** Takes token ids as they are. */
  public static Dataset ofTokens(int[] ids, Map<String, ?> options) {
    Native.required("ids", ids);
    try (OptionSet set = new OptionSet(options)) {
      return new Dataset(Native.made(out -> Raw.tsr_dataset_new_tokens(ids, set.pointer, out)));
    }
  }

  /** JSON: tokens, samples, and the entropy of the tokens' frequencies. */
  public String info() {
    try (Use use = use()) {
      return Native.text(use, out -> Raw.tsr_dataset_info(use.pointer, out));
    }
  }

  /** The training batch of a step, from 0: {@code batch} samples of seq + 1 ids, one after another. */
  public int[] batch(long step, long batch) {
    try (Use use = use()) {
      return Native.ids(use, 0, (items, count) -> Raw.tsr_dataset_batch(use.pointer, step, batch, items, count));
    }
  }
}
