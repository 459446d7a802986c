package dev.tessera;

import dev.tessera.raw.Raw;
import java.util.List;
import java.util.function.DoubleConsumer;
import java.util.function.ToLongFunction;

/** The forms in which results come out of the library. */
final class Native {
  private Native() {}

  /** A call that fills an array, or counts alone where that is null, and tells how many elements there are. */
  interface Fill<T> {
    long fill(T items, long[] count);
  }

  /** A step of long work; it tells the share that is done. */
  interface Step {
    long step(long pointer, double[] done);
  }

  /** An argument that must be there. */
  static <T> T required(String what, T argument) {
    if (argument == null) {
      throw TesseraException.invalid(what + " is null, wanted one");
    }
    return argument;
  }

  /** The handle that a call makes. */
  static long made(ToLongFunction<long[]> call) {
    return made(null, call);
  }

  static long made(Handle.Use use, ToLongFunction<long[]> call) {
    long[] out = new long[1];
    long status = call.applyAsLong(out);
    if (use == null) {
      TesseraException.check(status);
    } else {
      use.check(status);
    }
    return out[0];
  }

  /** The bytes of the text that a call makes. */
  static byte[] bytes(Handle.Use use, ToLongFunction<long[]> call) {
    long text = made(use, call);
    try {
      long size = Raw.tsr_text_size(text);
      if (size > Integer.MAX_VALUE - 8) {
        throw TesseraException.of(TesseraException.Code.OUT_OF_MEMORY,
            "found a text of " + size + " bytes, wanted one that fits into an array of Java", null);
      }
      return Raw.tsr_text_data(text);
    } finally {
      Raw.tsr_text_free(text);
    }
  }

  static String text(Handle.Use use, ToLongFunction<long[]> call) {
    return Text.string(bytes(use, call));
  }

  /** A text that a handle holds; null where its size is 0: there is none. */
  static String shortText(Handle.Use use, Fill<byte[]> call) {
    long[] size = new long[1];
    byte[] buffer = null;
    do {
      buffer = buffer == null ? new byte[128] : new byte[Math.toIntExact(size[0])];
      use.check(call.fill(buffer, size));
    } while (size[0] > buffer.length);
    return size[0] == 0 ? null : new String(buffer, 0, (int) size[0] - 1, java.nio.charset.StandardCharsets.UTF_8);
  }

  static int[] ids(Handle.Use use, int guess, Fill<int[]> call) {
    long[] count = {guess};
    int[] ids;
    do {
      ids = new int[Math.toIntExact(count[0])];
      use.check(call.fill(ids, count));
    } while (count[0] > ids.length);
    return count[0] == ids.length ? ids : java.util.Arrays.copyOf(ids, (int) count[0]);
  }

  /** Long work to its end. progress, which may be null, hears the share that is done after every step. */
  static void steps(Handle.Use use, Runnable cancel, Step step, DoubleConsumer progress) {
    double[] done = new double[1];
    do {
      Cancellation.check();
      use.check(cancel == null ? step.step(use.pointer, done)
          : Cancellation.guard(cancel, () -> step.step(use.pointer, done)));
      if (progress != null) {
        progress.accept(done[0]);
      }
    } while (done[0] < 1);
  }

  /** Arrays of ids one after another. */
  static int[] joined(String what, List<int[]> parts) {
    int[] all = new int[total(what, lengths(what, parts, ids -> ids.length))];
    int at = 0;
    for (int[] part : parts) {
      System.arraycopy(part, 0, all, at, part.length);
      at += part.length;
    }
    return all;
  }

  /** Texts of bytes one after another. */
  static byte[] joinedBytes(String what, List<byte[]> parts) {
    byte[] all = new byte[total(what, lengths(what, parts, bytes -> bytes.length))];
    int at = 0;
    for (byte[] part : parts) {
      System.arraycopy(part, 0, all, at, part.length);
      at += part.length;
    }
    return all;
  }

  static <T> long[] lengths(String what, List<T> parts, ToLongFunction<T> length) {
    long[] lengths = new long[required(what, parts).size()];
    for (int i = 0; i < lengths.length; ++i) {
      if (parts.get(i) == null) {
        throw TesseraException.invalid(what + ": number " + i + " is null");
      }
      lengths[i] = length.applyAsLong(parts.get(i));
    }
    return lengths;
  }

  static List<byte[]> utf8(String what, List<String> texts) {
    List<byte[]> all = new java.util.ArrayList<>(required(what, texts).size());
    for (String text : texts) {
      all.add(Text.bytes(what + ": number " + all.size(), text));
    }
    return all;
  }

  private static int total(String what, long[] lengths) {
    long total = java.util.Arrays.stream(lengths).sum();
    if (total > Integer.MAX_VALUE - 8) {
      throw TesseraException.invalid(what + ": found " + total + " in all, wanted at most " + (Integer.MAX_VALUE - 8)
          + ", which an array of Java holds; give them in several calls");
    }
    return (int) total;
  }
}
