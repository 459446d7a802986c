package dev.tessera;

import dev.tessera.raw.Raw;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;

/** A whole tensor in host memory, row-major and contiguous; without dims it is a scalar. */
public final class Tensor extends Handle {
  /** Filled with zeros. */
  public Tensor(DType dtype, long... dims) {
    this(null, make(dtype, dims));
  }

  Tensor(dev.tessera.raw.Callbacks.Source source, long pointer) {
    super("tensor", Raw::tsr_tensor_free, false, source, pointer);
  }

  private static long make(DType dtype, long[] dims) {
    int number = Native.required("dtype", dtype).number();
    long[] extents = Native.required("dims", dims);
    return Native.made(out -> Raw.tsr_tensor_new(number, extents, out));
  }

  /** An f32 tensor with a copy of {@code values}. */
  public static Tensor of(float[] values, long... dims) {
    Native.required("values", values);
    Tensor made = new Tensor(DType.F32, dims);
    made.fill(values.length, Float.BYTES, buffer -> buffer.asFloatBuffer().put(values));
    return made;
  }

  /** An i32 tensor with a copy of {@code values}: token ids, say. */
  public static Tensor of(int[] values, long... dims) {
    Native.required("values", values);
    Tensor made = new Tensor(DType.I32, dims);
    made.fill(values.length, Integer.BYTES, buffer -> buffer.asIntBuffer().put(values));
    return made;
  }

  private void fill(int count, int width, java.util.function.Consumer<ByteBuffer> put) {
    long bytes = bytes();
    if (bytes != (long) count * width) {
      String wanted = "values: found " + count + ", wanted " + bytes / width + ", the product of the dims";
      close();
      throw TesseraException.invalid(wanted);
    }
    try (Use use = use()) {
      put.accept(buffer(use, true, 0, bytes));
    }
  }

  /**
   * A tensor over the memory of a direct buffer, from its position to its limit, without a copy. The tensor, and the models
   * that it is written into, keep the memory; its content must stay as it is until they are freed.
   */
  public static Tensor borrow(DType dtype, ByteBuffer memory, long... dims) {
    int number = Native.required("dtype", dtype).number();
    long[] extents = Native.required("dims", dims);
    ByteBuffer slice = direct("memory", memory);
    return new Tensor(null, Native.made(out -> Raw.tsr_raw_tensor_borrow(number, extents, slice, out)));
  }

  /** A direct buffer whose address is that of its first byte. */
  static ByteBuffer direct(String what, ByteBuffer memory) {
    if (memory == null || !memory.isDirect()) {
      throw TesseraException.invalid(what + (memory == null ? " is null" : ": found a buffer in the heap of Java")
          + ", wanted a direct buffer (ByteBuffer.allocateDirect, FileChannel.map)");
    }
    return memory.slice();
  }

  /** Element type. */
  public DType dtype() {
    try (Use use = use()) {
      return DType.of(Raw.tsr_tensor_dtype(use.pointer));
    }
  }

  /** Extents. */
  public long[] dims() {
    try (Use use = use()) {
      long[] dims = new long[Raw.tsr_tensor_rank(use.pointer)];
      for (int i = 0; i < dims.length; ++i) {
        dims[i] = Raw.tsr_raw_tensor_dims(use.pointer, i);
      }
      return dims;
    }
  }

  /** Size of the content. */
  public long bytes() {
    try (Use use = use()) {
      return Raw.tsr_tensor_bytes(use.pointer);
    }
  }

  /** As read or fetched; "" for others. */
  public String name() {
    try (Use use = use()) {
      return Text.string(Raw.tsr_tensor_name(use.pointer));
    }
  }

  /**
   * The content, not copied, as a read-only buffer in the machine's byte order. The buffer, and every slice and view of it,
   * keeps the memory also once the tensor is closed. It is at most 2 GiB: for more there is {@link #data(long, long)}.
   */
  public ByteBuffer data() {
    return data(0, bytes());
  }

  /** {@code size} bytes of the content from byte {@code offset} on. */
  public ByteBuffer data(long offset, long size) {
    return view(false, offset, size).asReadOnlyBuffer().order(ByteOrder.nativeOrder());
  }

  /**
   * The content as a buffer that can be written, as {@link #data()}. {@link TesseraException.FailedPrecondition} for
   * borrowed tensors and those in a file.
   */
  public ByteBuffer writable() {
    return writable(0, bytes());
  }

  /** {@code size} bytes of it from byte {@code offset} on. */
  public ByteBuffer writable(long offset, long size) {
    return view(true, offset, size).order(ByteOrder.nativeOrder());
  }

  /** A copy of the content of an f32 tensor. */
  public float[] floats() {
    if (dtype() != DType.F32) {
      throw TesseraException.invalid("found a tensor of " + dtype().text() + ", wanted f32: others are read by data()");
    }
    try (Use use = use()) {
      float[] values = new float[Math.toIntExact(Raw.tsr_tensor_bytes(use.pointer) / Float.BYTES)];
      for (int at = 0; at < values.length;) {
        int count = Math.min(values.length - at, 1 << 28);
        buffer(use, false, 4L * at, 4L * count).asFloatBuffer().get(values, at, count);
        at += count;
      }
      return values;
    }
  }

  /** Slices keep the buffer that they are of, so that the tensor is in use as long as one of them is there. */
  private ByteBuffer view(boolean writable, long offset, long size) {
    Use use = use();
    boolean kept = false;
    try {
      ByteBuffer buffer = buffer(use, writable, offset, size);
      CLEANER.register(buffer, use::close);
      kept = true;
      return buffer;
    } finally {
      if (!kept) {
        use.close();
      }
    }
  }

  /** Only valid as long as {@code use} is. */
  private static ByteBuffer buffer(Use use, boolean writable, long offset, long size) {
    long all = Raw.tsr_tensor_bytes(use.pointer);
    if (offset < 0 || size < 0 || offset > all || size > all - offset || size > Integer.MAX_VALUE) {
      throw TesseraException.invalid("found " + size + " bytes from byte " + offset + ", wanted bytes among the " + all
          + " of the tensor, at most " + Integer.MAX_VALUE + " in one buffer");
    }
    Object buffer = writable ? Raw.tsr_raw_tensor_writable(use.pointer, offset, size)
        : Raw.tsr_raw_tensor_data(use.pointer, offset, size);
    if (buffer == null) {
      throw TesseraException.of(TesseraException.Code.FAILED_PRECONDITION,
          "the tensor is borrowed or in a file, wanted one of new Tensor: copy it", null);
    }
    return ((ByteBuffer) buffer).order(ByteOrder.nativeOrder());
  }
}
