package dev.tessera;

import dev.tessera.raw.Callbacks;
import java.lang.ref.Cleaner;
import java.lang.ref.Reference;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.LongConsumer;

/**
 * An object of the library. {@link #close} may be called any number of times, on any thread and in any order: it frees at
 * once, or as soon as the calls in progress end. Objects that are not closed are freed once they are garbage, but the
 * collector does not see the memory and threads behind them and may wait long, so close trainers, generators and models.
 * What is closed, or null, is refused with {@link TesseraException.InvalidArgument}.
 *
 * <p>Any thread may call any method. Of an object that changes (a trainer, a generator, a graph, ...) calls on several
 * threads are made one after another, except {@code cancel}.
 */
public abstract class Handle implements AutoCloseable {
  static final Cleaner CLEANER = Cleaner.create();

  private final State state;
  private final Cleaner.Cleanable cleanable;

  /**
   * Owns {@code pointer}. source: what the values of a model that this came from are read from, or null.
   *
   * @param alone whether one call at a time may use it
   */
  Handle(String noun, LongConsumer free, boolean alone, Callbacks.Source source, long pointer) {
    state = new State(noun, free, alone, source, pointer);
    cleanable = CLEANER.register(this, state);
  }

  /** Frees it; see the class. */
  @Override
  public final void close() {
    cleanable.clean();
  }

  /** Whether {@link #close} was called. */
  public final boolean isClosed() {
    return state.isClosed();
  }

  final Callbacks.Source source() {
    return state.source;
  }

  /** Where handles that lock are locked together, the order in which that is done. */
  final long order() {
    return state.order;
  }

  /** The pointer for one call, at whose end the Use is closed: until then it is not freed. */
  final Use use() {
    try {
      return state.use(true);
    } finally {
      Reference.reachabilityFence(this);
    }
  }

  /** The same for a call that may be made while others are in progress. */
  final Use share() {
    try {
      return state.use(false);
    } finally {
      Reference.reachabilityFence(this);
    }
  }

  /** use() of an argument, which must be there. */
  static Use use(Handle handle, String what) {
    if (handle == null) {
      throw TesseraException.invalid(what + " is null, wanted an open one");
    }
    return handle.use();
  }

  /** use() of an argument that may be null, where its pointer is 0, but not closed. */
  static Use optional(Handle handle) {
    return handle == null ? new Use(null, 0, false) : handle.use();
  }

  /** use() of another object, which the library keeps: it may be closed. */
  static Use ifOpen(Handle handle) {
    try {
      Use use = handle.state.useIfOpen(true);
      return use == null ? new Use(null, 0, false) : use;
    } finally {
      Reference.reachabilityFence(handle);
    }
  }

  static Callbacks.Source source(Handle handle) {
    return handle == null ? null : handle.source();
  }

  /** A call that ends what is in progress on another thread; nothing where the handle is closed. */
  final void cancelBy(LongConsumer cancel) {
    try (Use use = state.useOpen()) {
      if (use != null) {
        cancel.accept(use.pointer);
      }
    } finally {
      Reference.reachabilityFence(this);
    }
  }

  /** A pointer in use. */
  static final class Use implements AutoCloseable {
    final long pointer;
    private final State state;
    private final boolean locked;

    private Use(State state, long pointer, boolean locked) {
      this.state = state;
      this.pointer = pointer;
      this.locked = locked;
    }

    /** Throws unless {@code status} is success. */
    void check(long status) {
      TesseraException.check(status, state == null ? null : state.source);
    }

    @Override
    public void close() {
      if (state != null) {
        state.end(locked);
      }
    }
  }

  /** What outlives the Handle: it must not refer to it. */
  private static final class State implements Runnable {
    private static long made = 0;

    private final String noun;
    private final LongConsumer free;
    private final ReentrantLock lock;
    private final Callbacks.Source source;
    private final long order;
    private long pointer;
    private int uses = 0;
    private boolean closed = false;

    State(String noun, LongConsumer free, boolean alone, Callbacks.Source source, long pointer) {
      this.noun = noun;
      this.free = free;
      this.lock = alone ? new ReentrantLock() : null;
      this.source = source;
      this.pointer = pointer;
      synchronized (State.class) {
        order = ++made;
      }
    }

    synchronized boolean isClosed() {
      return closed;
    }

    Use use(boolean alone) {
      Use use = useIfOpen(alone);
      if (use == null) {
        throw TesseraException.invalid("the " + noun + " is closed, wanted an open one");
      }
      return use;
    }

    /** null where it is closed. */
    Use useIfOpen(boolean alone) {
      Use use = useOpen();
      if (use == null || !alone || lock == null) {
        return use;
      }
      try {
        if (!lock.tryLock()) {
          lock.lockInterruptibly();
        }
      } catch (InterruptedException e) {
        end(false);
        Thread.currentThread().interrupt();
        throw TesseraException.of(TesseraException.Code.CANCELLED,
            "the thread was interrupted while another one used the " + noun, e);
      }
      return new Use(this, use.pointer, true);
    }

    synchronized Use useOpen() {
      if (closed) {
        return null;
      }
      ++uses;
      return new Use(this, pointer, false);
    }

    void end(boolean locked) {
      if (locked) {
        lock.unlock();
      }
      synchronized (this) {
        --uses;
      }
      freeUnused();
    }

    @Override
    public void run() {
      synchronized (this) {
        closed = true;
      }
      freeUnused();
    }

    private void freeUnused() {
      long freed;
      synchronized (this) {
        if (!closed || uses > 0) {
          return;
        }
        freed = pointer;
        pointer = 0;
      }
      if (freed != 0) {
        free.accept(freed);
      }
    }
  }
}
