package dev.tessera;

import dev.tessera.raw.Raw;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.function.DoubleConsumer;

/**
 * Computes a row of numbers of each text: its vector, or what a classifier says of it; the header lists its options under
 * tsr_embedder_new.
 */
public final class Embedder extends Handle {
  private final boolean pairs;

  /** Plans, and prepares the devices. options may be null. */
  public Embedder(Runtime runtime, Model model, Map<String, ?> options) {
    super("embedder", Raw::tsr_embedder_free, true, source(model), make(runtime, model, options));
    Object given = options == null ? null : options.get("pairs");
    pairs = Boolean.TRUE.equals(given) || given instanceof Number number && number.longValue() != 0;
  }

  private static long make(Runtime runtime, Model model, Map<String, ?> options) {
    try (Use r = use(runtime, "runtime"); Use m = use(model, "model"); OptionSet set = new OptionSet(options)) {
      return Native.made(m, out -> Cancellation.guard(runtime::cancel,
          () -> Raw.tsr_embedder_new(r.pointer, m.pointer, set.pointer, out)));
    }
  }

  /** Numbers of a row. */
  public int width() {
    try (Use use = use()) {
      return width(use);
    }
  }

  private static int width(Use use) {
    long[] width = new long[1];
    use.check(Raw.tsr_embedder_width(use.pointer, width));
    return Math.toIntExact(width[0]);
  }

  /** A row of each text, or with option pairs of each two. */
  public List<float[]> embed(List<String> texts) {
    List<byte[]> parts = Native.utf8("texts", texts);
    long[] lengths = Native.lengths("texts", parts, part -> part.length);
    byte[] all = Native.joinedBytes("texts", parts);
    try (Use use = use()) {
      int width = width(use);
      long count = (long) width * (pairs ? lengths.length / 2 : lengths.length);
      if (count > Integer.MAX_VALUE - 8) {
        throw TesseraException.invalid("texts: found " + lengths.length + ", whose rows do not fit into an array of Java; give "
            + "them in several calls");
      }
      float[] rows = new float[(int) count];
      use.check(Cancellation.guard(this::cancel,
          () -> Raw.tsr_embedder_embed(use.pointer, all, lengths, rows, null)));
      return cut(rows, width);
    }
  }

  /** The same in pieces: progress, which may be null, hears the share that is done. */
  public List<float[]> embed(List<String> texts, DoubleConsumer progress) {
    List<byte[]> parts = Native.utf8("texts", texts);
    long[] lengths = Native.lengths("texts", parts, part -> part.length);
    byte[] all = Native.joinedBytes("texts", parts);
    try (Use use = use()) {
      use.check(Raw.tsr_embedder_start(use.pointer, all, lengths));
      return finish(use, progress);
    }
  }

  /** The same of token ids, which are read as they are. */
  public List<float[]> embedTokens(List<int[]> texts, DoubleConsumer progress) {
    long[] lengths = Native.lengths("texts", texts, ids -> ids.length);
    int[] ids = Native.joined("texts", texts);
    try (Use use = use()) {
      use.check(Raw.tsr_embedder_start_ids(use.pointer, ids, lengths));
      return finish(use, progress);
    }
  }

  private List<float[]> finish(Use use, DoubleConsumer progress) {
    Native.steps(use, this::cancel, Raw::tsr_embedder_step, progress);
    long[] count = new long[1];
    use.check(Raw.tsr_embedder_rows(use.pointer, null, count));
    float[] rows = new float[Math.toIntExact(count[0])];
    use.check(Raw.tsr_embedder_rows(use.pointer, rows, count));
    return cut(rows, width(use));
  }

  private static List<float[]> cut(float[] rows, int width) {
    List<float[]> all = new ArrayList<>();
    for (int at = 0; at < rows.length; at += width) {
      all.add(Arrays.copyOfRange(rows, at, at + width));
    }
    return all;
  }

  /** Names of a classifier's classes, in the order of a row; none for vectors. */
  public List<String> labels() {
    return Json.object(report()).get("labels") instanceof List<?> labels
        ? labels.stream().map(String::valueOf).toList() : List.of();
  }

  /** JSON: texts, tokens, speed, plan, memory. */
  public String report() {
    try (Use use = use()) {
      return Native.text(use, out -> Raw.tsr_embedder_report(use.pointer, out));
    }
  }

  /** Ends the embed in progress on another thread with {@link TesseraException.Cancelled}. */
  public void cancel() {
    cancelBy(Raw::tsr_embedder_cancel);
  }
}
