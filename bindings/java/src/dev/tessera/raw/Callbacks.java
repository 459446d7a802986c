package dev.tessera.raw;

import java.nio.ByteBuffer;

/** What the native library calls. Nothing thrown leaves these methods: there is C above them. */
public final class Callbacks {
  private Callbacks() {}

  /** The bytes of a file, read on any thread. It keeps what was thrown last, until that is taken. */
  public abstract static class Source {
    private Throwable failure;

    /** Fills {@code out} with the bytes from {@code offset} on. {@code out} must not be used after the call. */
    protected abstract void read(long offset, ByteBuffer out) throws Exception;

    /** Nothing reads any more. */
    protected abstract void release() throws Exception;

    final synchronized void keep(Throwable thrown) {
      failure = thrown;
    }

    public final synchronized Throwable takeFailure() {
      Throwable taken = failure;
      failure = null;
      return taken;
    }
  }

  static boolean read(Object source, long offset, ByteBuffer out) {
    try {
      ((Source) source).read(offset, out);
      if (out.hasRemaining()) {
        throw new java.io.EOFException(
            "found " + out.position() + " bytes from offset " + offset + ", wanted " + out.limit());
      }
      return true;
    } catch (Throwable thrown) {
      ((Source) source).keep(thrown);
      return false;
    }
  }

  static void release(Object source) {
    try {
      ((Source) source).release();
    } catch (Throwable thrown) {
      ((Source) source).keep(thrown);
    }
  }
}
