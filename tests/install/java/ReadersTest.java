import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.tessera.Generator;
import dev.tessera.Model;
import dev.tessera.ModelSource;
import dev.tessera.Runtime;
import dev.tessera.TesseraException;
import java.io.EOFException;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.channels.SeekableByteChannel;
import java.nio.file.Files;
import java.util.Map;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;

final class ReadersTest {
  /** Bytes in memory, which fail from some read on. */
  private static final class Bytes implements ModelSource {
    final byte[] bytes = read();
    final AtomicInteger reads = new AtomicInteger();
    final AtomicInteger closes = new AtomicInteger();
    volatile RuntimeException failure = null;
    volatile int failsAfter = Integer.MAX_VALUE;
    volatile boolean lazy = false;
    volatile ByteBuffer kept = null;

    private static byte[] read() {
      try {
        return Files.readAllBytes(Given.MODEL);
      } catch (IOException e) {
        throw new UncheckedIOException(e);
      }
    }

    @Override
    public long size() {
      return bytes.length;
    }

    @Override
    public void read(long offset, ByteBuffer out) {
      if (reads.incrementAndGet() > failsAfter) {
        throw new IllegalStateException("read " + reads);
      }
      if (failure != null) {
        throw failure;
      }
      kept = out;
      if (!lazy) {
        out.put(bytes, (int) offset, out.remaining());
      }
    }

    @Override
    public void close() {
      closes.incrementAndGet();
    }
  }

  private static String text(Model model) {
    try (Runtime runtime = Given.runtime();
        Generator generator = new Generator(runtime, model, Map.of("temperature", 0, "max_tokens", 10))) {
      return generator.generate("ab", null);
    }
  }

  @Test
  @DisplayName("models are read from channels, sources and mapped memory, which are closed at the end")
  void read() throws IOException, InterruptedException {
    String wanted;
    try (Model model = Given.model()) {
      wanted = text(model);
    }
    FileChannel file = FileChannel.open(Given.MODEL);
    try (Model model = Model.load(file)) {
      assertTrue(file.isOpen());
      assertEquals(wanted, text(model));
    }
    Given.collectUntil("the channel is closed", () -> !file.isOpen());
    SeekableByteChannel hidden = hide(FileChannel.open(Given.MODEL));
    try (Model model = Model.load(hidden)) {
      assertEquals(wanted, text(model));
    }
    assertFalse(hidden.isOpen());
    try (FileChannel mapped = FileChannel.open(Given.MODEL);
        Model model = Model.load(mapped.map(FileChannel.MapMode.READ_ONLY, 0, mapped.size()))) {
      System.gc();
      assertEquals(wanted, text(model));
    }
    Bytes bytes = new Bytes();
    Model model = Model.load(bytes);
    assertEquals(wanted, text(model));
    assertTrue(bytes.reads.get() > 0);
    bytes.kept.clear().put(new byte[bytes.kept.capacity()]); // a buffer that was kept is nobody's
    assertEquals(wanted, text(model));
    assertEquals(0, bytes.closes.get());
    model.close();
    assertEquals(1, bytes.closes.get());
    Given.invalid("wanted a direct buffer", () -> Model.load(ByteBuffer.allocate(8)));
  }

  /** A channel that is no FileChannel. */
  private static SeekableByteChannel hide(FileChannel file) {
    return (SeekableByteChannel) java.lang.reflect.Proxy.newProxyInstance(ReadersTest.class.getClassLoader(),
        new Class<?>[] {SeekableByteChannel.class}, (proxy, method, arguments) -> method.invoke(file, arguments));
  }

  @Test
  @DisplayName("what a source throws is the cause of the error")
  void thrown() throws IOException {
    Bytes bytes = new Bytes();
    bytes.failure = new IllegalStateException("no network");
    TesseraException.Io error = Given.refused(TesseraException.Io.class, "", () -> Model.load(bytes));
    assertSame(bytes.failure, error.getCause());
    assertEquals(1, bytes.closes.get());

    for (int reads : new int[] {1, 2, 5, 20}) {
      Bytes late = new Bytes();
      late.failsAfter = reads;
      error = Given.refused(TesseraException.Io.class, "", () -> Model.load(late));
      assertEquals("read " + (reads + 1), error.getCause().getMessage());
      assertEquals(1, late.closes.get());
    }

    Bytes lazy = new Bytes();
    lazy.lazy = true;
    error = Given.refused(TesseraException.Io.class, "", () -> Model.load(lazy));
    assertTrue(error.getCause() instanceof EOFException);

    byte[] garbage = new byte[100];
    Given.refused(TesseraException.class, "", () -> Model.load(new ModelSource() {
      @Override
      public long size() {
        return Long.MAX_VALUE;
      }

      @Override
      public void read(long offset, ByteBuffer out) {
        out.put(garbage, 0, Math.min(garbage.length, out.remaining()));
      }
    }));
    assertArrayEquals(new byte[100], garbage);
  }
}
