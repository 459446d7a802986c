package dev.tessera;

/** A token of a generated text, and the text that became certain with it, perhaps none yet. */
public final class Piece {
  private final int token;
  private final byte[] bytes;

  Piece(int token, byte[] bytes) {
    this.token = token;
    this.bytes = bytes;
  }

  /** Its id; -1 for text alone. */
  public int token() {
    return token;
  }

  /** Whole characters; bytes that never become one are U+FFFD here, and themselves in {@link #bytes}. */
  public String text() {
    return Text.string(bytes);
  }

  /** The text's bytes. */
  public byte[] bytes() {
    return bytes == null ? new byte[0] : bytes.clone();
  }

  @Override
  public String toString() {
    return text();
  }
}
