package dev.tessera;

import java.nio.channels.AsynchronousCloseException;
import java.nio.channels.spi.AbstractInterruptibleChannel;
import java.util.LinkedHashSet;
import java.util.Set;
import java.util.concurrent.Callable;
import java.util.function.LongSupplier;

/**
 * Ends calls from another thread. What runs inside {@link #call} or {@link #run} throws
 * {@link TesseraException.Cancelled} soon after {@link #cancel}: the call in progress, and those that would begin later.
 *
 * <pre>{@code
 * Cancellation cancellation = new Cancellation();
 * button.onClick(cancellation::cancel);
 * Step step = cancellation.call(trainer::step);
 * }</pre>
 *
 * <p>An interrupt of the thread does the same without one; the thread's interrupt status stays set. Calls that cannot be
 * ended, and short ones, do not look at either. Where a call plans, all planning of its {@link Runtime} that is in progress
 * ends with it.
 */
public final class Cancellation {
  private static final ThreadLocal<Scope> CURRENT = new ThreadLocal<>();

  /** What this thread runs under: several where a call is within another. */
  private record Scope(Cancellation cancellation, Scope outer) {}

  private final Set<Hook> hooks = new LinkedHashSet<>();
  private boolean cancelled = false;

  /** Not cancelled yet. */
  public Cancellation() {}

  /** Any thread, any number of times. */
  public void cancel() {
    Hook[] ended;
    synchronized (this) {
      cancelled = true;
      ended = hooks.toArray(new Hook[0]);
    }
    for (Hook hook : ended) {
      hook.ask();
    }
  }

  /** Whether it was. */
  public synchronized boolean isCancelled() {
    return cancelled;
  }

  /** Runs {@code body} on this thread, with calls in it ended by {@link #cancel}. */
  public <T> T call(Callable<T> body) throws Exception {
    Scope outer = CURRENT.get();
    CURRENT.set(new Scope(this, outer));
    try {
      return body.call();
    } finally {
      CURRENT.set(outer);
    }
  }

  /** The same without a result. */
  public void run(Runnable body) {
    Scope outer = CURRENT.get();
    CURRENT.set(new Scope(this, outer));
    try {
      body.run();
    } finally {
      CURRENT.set(outer);
    }
  }

  /** Throws where this thread is interrupted, or the cancellation that it runs under cancelled. */
  static void check() {
    for (Scope scope = CURRENT.get(); scope != null; scope = scope.outer) {
      if (scope.cancellation.isCancelled()) {
        throw TesseraException.of(TesseraException.Code.CANCELLED, "cancelled, as Cancellation.cancel asked for", null);
      }
    }
    if (Thread.currentThread().isInterrupted()) {
      throw TesseraException.of(TesseraException.Code.CANCELLED, "the thread was interrupted", null);
    }
  }

  /** Makes a native call, which {@code cancel} ends from another thread. */
  static long guard(Runnable cancel, LongSupplier call) {
    Scope current = CURRENT.get();
    Hook hook = new Hook(cancel);
    for (Scope scope = current; scope != null; scope = scope.outer) {
      scope.cancellation.add(hook);
    }
    hook.start();
    try {
      check();
      return call.getAsLong();
    } finally {
      hook.stop();
      for (Scope scope = current; scope != null; scope = scope.outer) {
        scope.cancellation.remove(hook);
      }
    }
  }

  private synchronized void add(Hook hook) {
    hooks.add(hook);
  }

  private synchronized void remove(Hook hook) {
    hooks.remove(hook);
  }

  /** A channel of nothing: what Java tells channels when their thread is interrupted. */
  private static final class Hook extends AbstractInterruptibleChannel {
    private static final int AGAIN_MS = 20;

    private final Runnable cancel;
    private boolean asked = false;
    private boolean done = false;

    Hook(Runnable cancel) {
      this.cancel = cancel;
    }

    void start() {
      begin();
    }

    void stop() {
      synchronized (this) {
        done = true;
      }
      try {
        end(true);
      } catch (AsynchronousCloseException e) {
        // The call itself says whether it was ended in time.
      }
    }

    /** Cancels until the call is over: what comes before the library has begun is lost on it. */
    void ask() {
      synchronized (this) {
        if (asked || done) {
          return;
        }
        asked = true;
        cancel.run();
      }
      Thread again = new Thread(() -> {
        do {
          try {
            Thread.sleep(AGAIN_MS);
          } catch (InterruptedException e) {
            return;
          }
        } while (askAgain());
      }, "tessera-cancellation");
      again.setDaemon(true);
      again.start();
    }

    private synchronized boolean askAgain() {
      if (!done) {
        cancel.run();
      }
      return !done;
    }

    @Override
    protected void implCloseChannel() {
      ask();
    }
  }
}
