package dev.tessera;

import dev.tessera.raw.Raw;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.function.DoubleConsumer;

/** Tells how likely given tokens are to a model; the header lists its options under tsr_scorer_new. */
public final class Scorer extends Handle {
  /**
   * Those of one text, a number for each token: the natural logarithm of its probability (NaN for the first where nothing
   * is before it), and whether no token was likelier.
   */
  public record Scores(float[] logProbs, boolean[] greedy) {}

  /** Plans, and prepares the devices. options may be null. */
  public Scorer(Runtime runtime, Model model, Map<String, ?> options) {
    super("scorer", Raw::tsr_scorer_free, true, source(model), make(runtime, model, options));
  }

  private static long make(Runtime runtime, Model model, Map<String, ?> options) {
    try (Use r = use(runtime, "runtime"); Use m = use(model, "model"); OptionSet set = new OptionSet(options)) {
      return Native.made(m, out -> Cancellation.guard(runtime::cancel,
          () -> Raw.tsr_scorer_new(r.pointer, m.pointer, set.pointer, out)));
    }
  }

  /** Scores texts of token ids, all at once. */
  public List<Scores> score(List<int[]> texts) {
    long[] lengths = Native.lengths("texts", texts, ids -> ids.length);
    int[] ids = Native.joined("texts", texts);
    float[] logProbs = new float[ids.length];
    byte[] greedy = new byte[ids.length];
    try (Use use = use()) {
      use.check(Cancellation.guard(this::cancel,
          () -> Raw.tsr_scorer_score(use.pointer, ids, lengths, logProbs, greedy)));
    }
    return cut(lengths, logProbs, greedy);
  }

  /** The same in pieces: progress hears the share that is done. */
  public List<Scores> score(List<int[]> texts, DoubleConsumer progress) {
    long[] lengths = Native.lengths("texts", texts, ids -> ids.length);
    int[] ids = Native.joined("texts", texts);
    float[] logProbs = new float[ids.length];
    byte[] greedy = new byte[ids.length];
    long[] count = new long[1];
    try (Use use = use()) {
      use.check(Raw.tsr_scorer_start(use.pointer, ids, lengths));
      Native.steps(use, this::cancel, Raw::tsr_scorer_step, progress);
      use.check(Raw.tsr_scorer_logprobs(use.pointer, logProbs, count));
      if (count[0] != ids.length) {
        throw TesseraException.of(TesseraException.Code.FAILED_PRECONDITION, count[0] + " tokens were scored, wanted "
            + ids.length + ": progress used the scorer", null);
      }
      use.check(Raw.tsr_scorer_greedy(use.pointer, greedy, count));
    }
    return cut(lengths, logProbs, greedy);
  }

  /** A scorer for these texts alone. */
  public static List<Scores> score(Runtime runtime, Model model, Map<String, ?> options, List<int[]> texts) {
    long[] lengths = Native.lengths("texts", texts, ids -> ids.length);
    int[] ids = Native.joined("texts", texts);
    float[] logProbs = new float[ids.length];
    byte[] greedy = new byte[ids.length];
    try (Use r = use(runtime, "runtime"); Use m = use(model, "model"); OptionSet set = new OptionSet(options)) {
      m.check(Cancellation.guard(runtime::cancel, () -> Raw.tsr_model_score(
          r.pointer, m.pointer, set.pointer, ids, lengths, logProbs, greedy)));
    }
    return cut(lengths, logProbs, greedy);
  }

  private static List<Scores> cut(long[] lengths, float[] logProbs, byte[] greedy) {
    List<Scores> all = new ArrayList<>(lengths.length);
    int begin = 0;
    for (long length : lengths) {
      int end = begin + (int) length;
      all.add(scores(Arrays.copyOfRange(logProbs, begin, end), Arrays.copyOfRange(greedy, begin, end)));
      begin = end;
    }
    return all;
  }

  static Scores scores(float[] logProbs, byte[] greedy) {
    boolean[] likeliest = new boolean[greedy.length];
    for (int i = 0; i < likeliest.length; ++i) {
      likeliest[i] = greedy[i] != 0;
    }
    return new Scores(logProbs, likeliest);
  }

  /** JSON: tokens, windows, speed, plan, memory. */
  public String report() {
    try (Use use = use()) {
      return Native.text(use, out -> Raw.tsr_scorer_report(use.pointer, out));
    }
  }

  /** Ends the score in progress on another thread with {@link TesseraException.Cancelled}. */
  public void cancel() {
    cancelBy(Raw::tsr_scorer_cancel);
  }
}
