package dev.tessera;

import dev.tessera.raw.Raw;
import java.nio.ByteBuffer;

/**
 * Functions of the program that replace the library's, or are notified, for one {@link Runtime}. Methods are called on any thread, on
 * several at once, and must not use this package. What they throw is given to the thread's uncaught exception handler.
 */
public interface Hooks {
  /** The memory of arenas; null (as here) for the library's own. Asked once, when the runtime is made. */
  default Memory memory() {
    return null;
  }

  /**
   * The first that a thread which computes does, on that thread. role: "kernels" (number: 1 to threads - 1 of the pool), "rank"
   * (the device's number; the first device's is the calling thread), "stream" (the device's number), "generator" (0). More may
   * come.
   */
  default void threadStarted(String role, int number) {}

  /**
   * Memory of arenas on CPU devices: huge pages, a NUMA node, an accounted pool. Weights that handles over a model share, and
   * what a call needs for a moment, are not taken from it.
   */
  interface Memory {
    /**
     * The address of memory of any content, aligned to {@code alignment}, a power of two; 0 where there is none. What is thrown
     * counts as that, which is {@link TesseraException.OutOfMemory} in the call that needed it.
     */
    long allocate(long bytes, long alignment);

    /** Takes back what allocate gave. */
    void deallocate(long address, long bytes);
  }

  /** The address of a direct buffer's first byte, which is its memory as long as somebody refers to the buffer. */
  static long address(ByteBuffer direct) {
    return Raw.tsr_raw_buffer_address(Tensor.direct("buffer", direct));
  }
}
