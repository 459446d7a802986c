import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.tessera.DType;
import dev.tessera.Model;
import dev.tessera.Tensor;
import dev.tessera.TesseraException;
import java.lang.ref.WeakReference;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.FloatBuffer;
import java.nio.ReadOnlyBufferException;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;

final class BuffersTest {
  @Test
  @DisplayName("views of tensors are read-only, and keep their memory when the tensor is closed")
  void views() {
    Tensor tensor = Tensor.of(new float[] {1, 2, 3, 4, 5, 6}, 2, 3);
    assertEquals(DType.F32, tensor.dtype());
    assertEquals("f32", tensor.dtype().text());
    assertArrayEquals(new long[] {2, 3}, tensor.dims());
    assertEquals(24, tensor.bytes());
    assertEquals("", tensor.name());
    tensor.writable(4, 4).putFloat(0, 7);
    FloatBuffer floats = tensor.data().asFloatBuffer().slice(1, 2);
    assertThrows(ReadOnlyBufferException.class, () -> tensor.data().put(0, (byte) 1));
    Given.invalid("found 8 bytes from byte 20", () -> tensor.data(20, 8));
    Given.invalid("found 1 bytes from byte -1", () -> tensor.data(-1, 1));
    assertArrayEquals(new float[] {1, 7, 3, 4, 5, 6}, tensor.floats());
    tensor.close();
    for (int i = 0; i < 10; ++i) {
      System.gc();
      Tensor.of(new float[] {9, 9, 9, 9, 9, 9}, 6).close();
    }
    assertEquals(7, floats.get(0));
    assertEquals(3, floats.get(1));
    Given.invalid("tensor is closed", tensor::data);
    try (Tensor scalar = new Tensor(DType.I64); Tensor none = new Tensor(DType.F32, 0, 3)) {
      assertEquals(8, scalar.data().remaining());
      assertEquals(0, none.data().remaining());
      assertEquals(0, none.floats().length);
    }
    Given.invalid("values: found 2, wanted 3", () -> Tensor.of(new int[2], 3));
    Given.invalid("", () -> new Tensor(DType.F32, -1));
    Given.invalid("", () -> new Tensor(DType.F32, 1, 1, 1, 1, 1, 1, 1));
    assertThrows(TesseraException.class, () -> new Tensor(DType.F32, Long.MAX_VALUE, Long.MAX_VALUE));
    Given.invalid("dims is null", () -> new Tensor(DType.F32, (long[]) null));
  }

  @Test
  @DisplayName("direct buffers are borrowed, and given back once nothing uses them")
  void borrowed() throws InterruptedException {
    ByteBuffer memory = ByteBuffer.allocateDirect(4 * 6).order(ByteOrder.nativeOrder());
    for (int i = 0; i < 6; ++i) {
      memory.putFloat(4 * i, i);
    }
    memory.position(4).limit(20);
    WeakReference<ByteBuffer> kept = new WeakReference<>(memory);
    Tensor tensor = Tensor.borrow(DType.F32, memory, 4);
    Given.invalid("", () -> Tensor.borrow(DType.F32, kept.get(), 5));
    Given.invalid("found a buffer in the heap", () -> Tensor.borrow(DType.F32, ByteBuffer.allocate(16), 4));
    Given.invalid("memory is null", () -> Tensor.borrow(DType.F32, null, 4));
    memory = null;
    for (int i = 0; i < 5; ++i) {
      System.gc();
    }
    assertArrayEquals(new float[] {1, 2, 3, 4}, tensor.floats());
    Given.refused(TesseraException.FailedPrecondition.class, "borrowed", tensor::writable);
    tensor.close();
    Given.collectUntil("the buffer is garbage", () -> kept.get() == null);
  }

  @Test
  @DisplayName("values of models are read and written")
  void values() throws InterruptedException {
    WeakReference<ByteBuffer> kept;
    try (Model model = Given.model()) {
      String name = model.parameters().get(0);
      Tensor before = model.read(name);
      assertEquals(name, before.name());
      float[] values = before.floats();
      ByteBuffer memory = ByteBuffer.allocateDirect(4 * values.length).order(ByteOrder.nativeOrder());
      memory.asFloatBuffer().put(values).put(0, 42);
      kept = new WeakReference<>(memory);
      try (Tensor mine = Tensor.borrow(DType.F32, memory, before.dims())) {
        model.write(name, mine);
      }
      memory = null;
      System.gc();
      try (Tensor after = model.read(name)) {
        assertEquals(42, after.floats()[0]);
      }
      assertArrayEquals(values, before.floats());
      before.close();
      assertTrue(kept.get() != null || model.parameters().size() > 0);
      Given.invalid("", () -> model.write(name, Tensor.of(new float[1], 1)));
    }
    Given.collectUntil("the model gave the buffer back", () -> kept.get() == null);
  }
}
