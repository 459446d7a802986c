package dev.tessera;

import dev.tessera.raw.Raw;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.OptionalInt;

/** Turns texts into token ids and back. Immutable. */
public final class Tokenizer extends Handle {
  /** What encoding does in addition. */
  public enum Encode {
    /** Recognise control tokens written out in the text, such as {@code <s>}. */
    SPECIAL,
    /** Put the beginning-of-sequence token in front, where there is one. */
    BOS,
    /** Add the tokenizer's tokens around the text, such as BOS and EOS. */
    AROUND
  }

  /** A part of a text: bytes of its UTF-8, the first and the one after the last. */
  public record Range(long begin, long end) {}

  /** Token ids, and the byte offset of each. */
  public record Encoding(int[] ids, long[] begins) {}

  Tokenizer(long pointer) {
    super("tokenizer", Raw::tsr_tokenizer_free, false, null, pointer);
  }

  /** 256 tokens, one a byte. */
  public static Tokenizer bytes() {
    return new Tokenizer(Native.made(Raw::tsr_tokenizer_new_bytes));
  }

  /** The tokenizer inside a .tsr or GGUF file, or of a Hugging Face folder or tokenizer.json. */
  public static Tokenizer load(Path path) {
    byte[] name = Text.path("path", path);
    return new Tokenizer(Native.made(out -> Raw.tsr_tokenizer_load(name, out)));
  }

  private static long flags(Encode[] given) {
    long flags = 0;
    for (Encode flag : Native.required("with", given)) {
      flags |= switch (Native.required("with", flag)) {
        case SPECIAL -> Raw.TSR_ENCODE_SPECIAL;
        case BOS -> Raw.TSR_ENCODE_BOS;
        case AROUND -> Raw.TSR_ENCODE_AROUND;
      };
    }
    return flags;
  }

  /** Token ids of a text. */
  public int[] encode(String text, Encode... with) {
    byte[] given = Text.bytes("text", text);
    long flags = flags(with);
    try (Use use = use()) {
      return Native.ids(use, given.length / 3 + 8,
          (ids, count) -> Raw.tsr_tokenizer_encode(use.pointer, given, flags, ids, count));
    }
  }

  /** The same; in the literal parts, in order and disjoint, no control token is recognised, whatever they spell. */
  public Encoding encodeRanges(String text, List<Range> literal, Encode... with) {
    byte[] given = Text.bytes("text", text);
    long flags = flags(with);
    long[] bounds = new long[2 * Native.required("literal", literal).size()];
    for (int i = 0; i < literal.size(); ++i) {
      Range range = Native.required("range " + i, literal.get(i));
      bounds[2 * i] = range.begin();
      bounds[2 * i + 1] = range.end();
    }
    long[][] begins = new long[1][];
    try (Use use = use()) {
      int[] ids = Native.ids(use, given.length / 3 + 8, (items, count) -> {
        begins[0] = new long[items.length];
        return Raw.tsr_tokenizer_encode_ranges(use.pointer, given, flags, bounds, items, begins[0], count);
      });
      return new Encoding(ids, Arrays.copyOf(begins[0], ids.length));
    }
  }

  /** Token ids of several texts, on several threads; 0: one a core. */
  public List<int[]> encodeAll(List<String> texts, int threads, Encode... with) {
    List<byte[]> parts = Native.utf8("texts", texts);
    long[] lengths = Native.lengths("texts", parts, part -> part.length);
    byte[] all = Native.joinedBytes("texts", parts);
    long flags = flags(with);
    long[] counts = new long[lengths.length];
    try (Use use = use()) {
      int[] ids = Native.ids(use, all.length / 3 + 8 * (lengths.length + 1), (items, count) ->
          Raw.tsr_tokenizer_encode_batch(use.pointer, all, lengths, flags, threads, items, counts, count));
      List<int[]> each = new ArrayList<>(lengths.length);
      int at = 0;
      for (long count : counts) {
        each.add(Arrays.copyOfRange(ids, at, at + (int) count));
        at += (int) count;
      }
      return each;
    }
  }

  /** JSON {"tokens": {text: count}, "note": text}: control tokens that stand written out in a text, as where a chat
   *  template rendered it before; without {@link Encode#SPECIAL} they are encoded as letters. */
  public String writtenControl(String text) {
    byte[] bytes = Text.bytes("text", text);
    try (Use use = use()) {
      return Native.text(use, out -> Raw.tsr_tokenizer_written_control(use.pointer, bytes, out));
    }
  }

  /** The text of ids, without BOS; bytes that are no UTF-8 become U+FFFD. */
  public String decode(int... ids) {
    return Text.string(decodeBytes(ids));
  }

  /** The bytes of ids. */
  public byte[] decodeBytes(int... ids) {
    Native.required("ids", ids);
    try (Use use = use()) {
      return Native.bytes(use, out -> Raw.tsr_tokenizer_decode(use.pointer, ids, out));
    }
  }

  /** How many tokens there are. */
  public int vocabularySize() {
    try (Use use = use()) {
      return Raw.tsr_tokenizer_vocabulary_size(use.pointer);
    }
  }

  /** The beginning-of-sequence token, where there is one. */
  public OptionalInt bos() {
    try (Use use = use()) {
      return token(Raw.tsr_tokenizer_bos(use.pointer));
    }
  }

  /** The end-of-sequence token, where there is one. */
  public OptionalInt eos() {
    try (Use use = use()) {
      return token(Raw.tsr_tokenizer_eos(use.pointer));
    }
  }

  private static OptionalInt token(int id) {
    return id < 0 ? OptionalInt.empty() : OptionalInt.of(id);
  }

  /** Every token that ends generation: of a text, a turn or a message. */
  public int[] endIds() {
    try (Use use = use()) {
      return Native.ids(use, 8, (ids, count) -> Raw.tsr_tokenizer_end_ids(use.pointer, ids, count));
    }
  }
}
