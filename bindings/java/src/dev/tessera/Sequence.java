package dev.tessera;

import dev.tessera.raw.Raw;

/**
 * A sequence is a value: the tokens of a prompt and of its text, whose keys and values stay in the engine's cache while it has
 * room, and are computed again where it has not. It holds nothing but its tokens, so any number may be kept, with or without
 * their engine. {@link Request#sequence} gives one, {@link Engine#submit(Sequence, int[], java.util.Map)} goes on with it.
 */
public final class Sequence extends Handle {
  Sequence(long pointer) {
    super("sequence", Raw::tsr_sequence_free, true, null, pointer);
  }

  /** A copy, which goes its own way. */
  public Sequence fork() {
    try (Use use = use()) {
      return new Sequence(Native.made(use, out -> Raw.tsr_sequence_fork(use.pointer, out)));
    }
  }

  /** Keeps the first {@code count} tokens: 1 to all. */
  public void rewind(long count) {
    if (count < 0) {
      throw TesseraException.invalid("count is " + count + ", wanted 1 to as many as the sequence has");
    }
    try (Use use = use()) {
      use.check(Raw.tsr_sequence_rewind(use.pointer, count));
    }
  }

  /** The ids of prompt and text. */
  public int[] tokens() {
    try (Use use = use()) {
      return Native.ids(use, 256, (ids, count) -> Raw.tsr_sequence_tokens(use.pointer, ids, count));
    }
  }
}
