package dev.tessera;

import dev.tessera.raw.Raw;
import java.nio.file.Path;
import java.util.Map;
import java.util.function.DoubleConsumer;

/**
 * What a trainer reads: a text cut into samples, rows of training data (JSON lines), or rows of token ids. Immutable.
 * Options: seq, eval_fraction, shuffle, seed, of texts special, and of rows those of docs/guides/training-data.md:
 * kind, template, mask, packing and others.
 */
public final class Dataset extends Handle {
  private Dataset(long pointer) {
    super("dataset", Raw::tsr_dataset_free, false, null, pointer);
  }

  /** Reads and tokenises a text file, or rows of training data (JSON): the content decides. */
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
      return read(Native.made(out -> Raw.tsr_dataset_begin_file(0, name, use.pointer, set.pointer, out)), progress);
    }
  }

  /**
   * Throws where a text is no plain text in UTF-8, for what reads texts alone. The name begins messages; takesTables: lines of
   * tab-separated texts are text too.
   */
  public static void checkText(String text, String name, boolean takesTables) {
    TesseraException.check(
        Raw.tsr_text_check(Text.bytes("text", text), Text.name("name", name), takesTables ? 1 : 0));
  }

  /** All of a file, of a pipe, or of standard input for "-": at most this many bytes (0: any) and half of the memory. */
  public static byte[] readText(Path path, long most) {
    byte[] name = Text.path("path", path);
    return Native.bytes(null, out -> Raw.tsr_text_read(name, most, out));
  }

  /** Writes a text to a file: whole or not at all, with the permissions of the file that it replaces. */
  public static void writeText(Path path, String text) {
    TesseraException.check(Raw.tsr_text_write(Text.bytes("text", text), Text.path("path", path)));
  }

  /** Throws what {@link #writeText} would throw at once; without takesDevices also for devices, pipes and sockets. */
  public static void checkTextPath(Path path, boolean takesDevices) {
    TesseraException.check(Raw.tsr_text_check_path(Text.path("path", path), takesDevices ? 1 : 0));
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
      return read(Native.made(out -> Raw.tsr_dataset_begin_text(0, given, use.pointer, set.pointer, out)), progress);
    }
  }

  private static Dataset read(long pointer, DoubleConsumer progress) {
    try (Work reading = new Work(pointer); Use use = reading.use()) {
      Work.run(use, null, progress);
      return new Dataset(Native.made(out -> Raw.tsr_dataset_finish(use.pointer, out)));
    }
  }

  /** Takes token ids as they are. */
  public static Dataset ofTokens(int[] ids, Map<String, ?> options) {
    Native.required("ids", ids);
    try (OptionSet set = new OptionSet(options)) {
      return new Dataset(Native.made(out -> Raw.tsr_dataset_new_tokens(ids, set.pointer, out)));
    }
  }

  /**
   * Rows of as many tokens each, one after another: tokens, labels (what should follow, or -1), weights (factors on the
   * losses of labels, 0: the label does not count), segments (number of the document that a token is of) and positions in
   * it. Of what is given to {@link #ofRows} all but the tokens may be null.
   */
  public record Rows(int[] tokens, int[] labels, float[] weights, int[] segments, int[] positions) {}

  /** Takes rows of {@code seq} tokens. */
  public static Dataset ofRows(Rows rows, int seq, Map<String, ?> options) {
    Native.required("rows", rows);
    int[] tokens = rows.tokens();
    Native.required("tokens", tokens);
    if (seq < 1 || tokens.length == 0 || tokens.length % seq != 0) {
      throw TesseraException.invalid("the tokens are no rows of " + seq);
    }
    for (Object values : new Object[] {rows.labels(), rows.weights(), rows.segments(), rows.positions()}) {
      if (values != null && java.lang.reflect.Array.getLength(values) != tokens.length) {
        throw TesseraException.invalid("labels, weights, segments and positions are as many as tokens, or null");
      }
    }
    try (OptionSet set = new OptionSet(options)) {
      return new Dataset(Native.made(out -> Raw.tsr_dataset_new_rows(tokens.length / seq, seq, tokens, rows.labels(),
          rows.weights(), rows.segments(), rows.positions(), set.pointer, out)));
    }
  }

  /** What the trainer feeds at a step, from 0: {@code batch} rows of seq tokens. */
  public Rows rows(long step, int batch) {
    long seq = (Long) Json.object(info()).get("seq");
    if (batch < 1 || batch * seq > Integer.MAX_VALUE - 8) {
      throw TesseraException.invalid("batch is " + batch + ", wanted 1 or more, and rows that fit into an array of Java");
    }
    int count = (int) (batch * seq);
    Rows rows = new Rows(new int[count], new int[count], null, new int[count], new int[count]);
    try (Use use = use()) {
      use.check(Raw.tsr_dataset_rows(use.pointer, step, batch, rows.tokens(), rows.labels(), rows.positions(),
          rows.segments(), count, null));
    }
    return rows;
  }

  /** JSON: an example of rows of training data, by number from 0: its ids, and which of them are trained. */
  public String example(long number) {
    try (Use use = use()) {
      return Native.text(use, out -> Raw.tsr_dataset_example(use.pointer, number, out));
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
