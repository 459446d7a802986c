package dev.tessera;

import dev.tessera.raw.Callbacks;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.channels.SeekableByteChannel;

/**
 * Where a model's file is read from: archives, databases, encrypted stores. Methods are called on any thread, on several at
 * once, and must not use the model. What {@link #read} throws makes the call that needed the bytes fail with
 * {@link TesseraException.Io}, whose cause it is.
 */
public interface ModelSource {
  /** Bytes of the whole file. */
  long size() throws IOException;

  /** Fills {@code out} to its limit with the bytes from {@code offset} on. */
  void read(long offset, ByteBuffer out) throws IOException;

  /** Nothing reads any more, also where the load failed. */
  default void close() throws IOException {}

  /** The bytes of a channel, which is closed once nothing reads any more. */
  static ModelSource of(SeekableByteChannel channel) {
    Native.required("channel", channel);
    return new ModelSource() {
      @Override
      public long size() throws IOException {
        return channel.size();
      }

      @Override
      public void read(long offset, ByteBuffer out) throws IOException {
        if (channel instanceof FileChannel file) {
          while (out.hasRemaining() && file.read(out, offset + out.position()) >= 0) {}
          return;
        }
        synchronized (this) {
          channel.position(offset);
          while (out.hasRemaining() && channel.read(out) >= 0) {}
        }
      }

      @Override
      public void close() throws IOException {
        channel.close();
      }
    };
  }

  /** What the library calls. A source of unknown make never sees the library's memory, which it might keep. */
  static Callbacks.Source callbacks(ModelSource source) {
    return new Callbacks.Source() {
      private static final int PART = 1 << 20;

      @Override
      protected void read(long offset, ByteBuffer out) throws IOException {
        ByteBuffer copy = ByteBuffer.allocate(Math.min(PART, out.remaining()));
        for (long at = offset; out.hasRemaining(); at += copy.limit()) {
          copy.clear().limit(Math.min(copy.capacity(), out.remaining()));
          source.read(at, copy);
          if (copy.hasRemaining()) {
            throw new java.io.EOFException("found " + copy.position() + " bytes at offset " + at + ", wanted " + copy.limit());
          }
          out.put(copy.flip());
        }
      }

      @Override
      protected void release() throws IOException {
        source.close();
      }
    };
  }
}
