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

  /** Hears the log. */
  public interface Log {
    /** A record, as UTF-8. */
    void log(int level, byte[] text);
  }

  /** What the library asks of the program, or tells it. */
  public interface Host {
    /** An address; 0: no memory. */
    long allocate(long bytes, long alignment);

    void deallocate(long address, long bytes);

    void threadStarted(String role, int number);
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

  static void log(Object log, int level, byte[] text) {
    try {
      ((Log) log).log(level, text);
    } catch (Throwable thrown) {
      tell(thrown);
    }
  }

  static long allocate(Object host, long bytes, long alignment) {
    try {
      return ((Host) host).allocate(bytes, alignment);
    } catch (Throwable thrown) {
      tell(thrown);
      return 0;
    }
  }

  static void deallocate(Object host, long address, long bytes) {
    try {
      ((Host) host).deallocate(address, bytes);
    } catch (Throwable thrown) {
      tell(thrown);
    }
  }

  static void threadStarted(Object host, String role, int number) {
    try {
      ((Host) host).threadStarted(role, number);
    } catch (Throwable thrown) {
      tell(thrown);
    }
  }

  /** Nobody who called waits for what was thrown: the thread's handler has it. */
  private static void tell(Throwable thrown) {
    try {
      Thread thread = Thread.currentThread();
      thread.getUncaughtExceptionHandler().uncaughtException(thread, thrown);
    } catch (Throwable again) {
      // As where a thread ends: what handlers throw is dropped.
    }
  }
}
