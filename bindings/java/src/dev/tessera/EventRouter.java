package dev.tessera;

import dev.tessera.raw.Raw;
import java.lang.ref.WeakReference;
import java.util.ArrayDeque;
import java.util.HashMap;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.ReentrantLock;

/**
 * Brings the events of an engine to those who collect them: all to one, or each to its request. A thread does the latter, which
 * there is only while requests are in progress and collected; it does not keep the engine from being garbage.
 */
final class EventRouter {
  /** How long a wait lasts before it looks at interrupts and closes. */
  static final double SLICE_S = 0.05;

  /** How the events are collected, which the first call decides. */
  private enum Reader { NONE, ALL, EACH }

  /** What takes the events of a request in place of its queue. It is called under the router's lock. */
  interface Sink {
    void add(Event event);

    /** thrown: null where all texts have ended. */
    void end(TesseraException thrown);
  }

  /** Events of a request that were not collected yet. */
  final class Queue {
    private final ArrayDeque<Event> events = new ArrayDeque<>();
    private final Condition changed = lock.newCondition();
    private long texts = 0;  // until it is submitted
    private long ended = 0;
    private boolean dropped = false;
    private Sink sink = null;

    private boolean isComplete() {
      return texts > 0 && ended >= texts;
    }
  }

  private final WeakReference<Engine> engine;
  private final ReentrantLock reading = new ReentrantLock();  // one call of tsr_engine_next at a time
  private final ReentrantLock lock = new ReentrantLock();
  private final Map<Long, Queue> queues = new HashMap<>();  // of requests whose texts have not all ended
  private Reader reader = Reader.NONE;
  private boolean distributing = false;
  private TesseraException failure = null;  // after which nothing comes any more

  EventRouter(Engine engine) {
    this.engine = new WeakReference<>(engine);
  }

  /** All events are collected by one. */
  void chooseAll() {
    lock.lock();
    try {
      choose(Reader.ALL);
    } finally {
      lock.unlock();
    }
  }

  private void choose(Reader wanted) {
    if (reader == Reader.NONE) {
      reader = wanted;
    }
    if (reader != wanted) {
      throw TesseraException.of(TesseraException.Code.FAILED_PRECONDITION, wanted == Reader.ALL
          ? "the engine's events are collected by its requests, so that Engine.next and events would find none: use one of both, "
              + "or another engine"
          : "the engine's events are collected by Engine.next or events, so that a request has none of its own: use one of both, "
              + "or another engine", null);
    }
  }

  /** Of a request, whose events may come before its submission has returned. */
  private Queue queue(long request) {
    return queues.computeIfAbsent(request, key -> new Queue());
  }

  Queue add(long request, long texts) {
    lock.lock();
    try {
      Queue queue = queue(request);
      queue.texts = texts;
      if (queue.isComplete()) {
        queues.remove(request);
      }
      return queue;
    } finally {
      lock.unlock();
    }
  }

  /** Whether events are still to come. */
  boolean isBusy() {
    lock.lock();
    try {
      return !queues.isEmpty();
    } finally {
      lock.unlock();
    }
  }

  void drop(Queue queue) {
    lock.lock();
    try {
      queue.events.clear();
      queue.dropped = true;
    } finally {
      lock.unlock();
    }
  }

  /** The next event of any request; null where none came. */
  Event take(Engine from, double timeout) {
    int[] fields = new int[4];
    long[] request = new long[1];
    byte[][] texts = new byte[2][];
    reading.lock();
    try (Handle.Use use = from.share()) {
      use.check(Raw.tsr_raw_engine_next(use.pointer, timeout, fields, request, texts));
      if (fields[0] == Raw.TSR_EVENT_PENDING) {
        return null;
      }
      Event event = new Event(Event.Kind.values()[fields[0]], request[0], fields[2], fields[3], Text.string(texts[0]),
          Generator.Finish.values()[fields[1]], Text.string(texts[1]));
      note(event);
      return event;
    } finally {
      reading.unlock();
    }
  }

  private void note(Event event) {
    lock.lock();
    try {
      Queue queue = queue(event.request());
      if (reader == Reader.EACH && !queue.dropped) {
        if (queue.sink == null) {
          queue.events.add(event);
        } else {
          queue.sink.add(event);
        }
      }
      if (event.kind() == Event.Kind.END) {
        ++queue.ended;
      }
      if (queue.isComplete()) {
        queues.remove(event.request());
        if (queue.sink != null) {
          queue.sink.end(null);
        }
      }
      queue.changed.signalAll();
    } finally {
      lock.unlock();
    }
  }

  /** The next event of a request; empty where all texts have ended. */
  Optional<Event> next(Engine from, Request request, Queue queue) {
    lock.lock();
    try {
      choose(Reader.EACH);
      for (;;) {
        if (!queue.events.isEmpty()) {
          return Optional.of(queue.events.remove());
        }
        if (queue.dropped || queue.isComplete()) {
          return Optional.empty();
        }
        Cancellation.check();
        begin();
        queue.changed.await((long) (SLICE_S * 1e9), TimeUnit.NANOSECONDS);
      }
    } catch (InterruptedException e) {
      from.cancel(request.number());
      Thread.currentThread().interrupt();
      throw TesseraException.of(TesseraException.Code.CANCELLED, "the thread was interrupted", e);
    } catch (TesseraException.Cancelled e) {
      from.cancel(request.number());
      throw e;
    } finally {
      lock.unlock();
    }
  }

  /** Gives the events of a request, those that came and those that will, to a sink. */
  void collect(Engine from, Queue queue, Sink sink) {
    lock.lock();
    try {
      choose(Reader.EACH);
      if (queue.dropped || queue.sink != null) {
        throw TesseraException.of(TesseraException.Code.FAILED_PRECONDITION, "the request's events are collected already", null);
      }
      if (!queue.isComplete()) {
        begin();
      }
      queue.sink = sink;
      for (Event event : queue.events) {
        sink.add(event);
        answer(from, event);
      }
      queue.events.clear();
      if (queue.isComplete()) {
        sink.end(null);
      }
    } finally {
      lock.unlock();
    }
  }

  /** Begins to bring events to their requests. With the lock held. */
  private void begin() {
    if (failure != null) {
      throw TesseraException.of(failure.code(), failure.getMessage(), failure);
    }
    if (!distributing) {
      Thread thread = new Thread(this::distribute, "tessera-engine");
      thread.setDaemon(true);
      thread.start();
      distributing = true;
    }
  }

  private void distribute() {
    while (isWanted()) {
      try {
        takeOne();
      } catch (TesseraException e) {
        fail(e);
      } catch (Throwable e) {
        fail(TesseraException.of(TesseraException.Code.INTERNAL, "events were lost: " + e, e));
      }
    }
  }

  private boolean isWanted() {
    lock.lock();
    try {
      distributing = !queues.isEmpty() && failure == null;
      return distributing;
    } finally {
      lock.unlock();
    }
  }

  /** In a method of its own, so that the engine is referred to meanwhile only. */
  private void takeOne() {
    Engine from = engine.get();
    if (from == null) {
      throw TesseraException.invalid("the engine is garbage: keep a reference to it, or to the request");
    }
    Event event = take(from, SLICE_S);
    if (event != null && event.kind() == Event.Kind.LOGITS && hasSink(event.request())) {
      answer(from, event);
    }
  }

  private boolean hasSink(long request) {
    lock.lock();
    try {
      Queue queue = queues.get(request);
      return queue != null && queue.sink != null;
    } finally {
      lock.unlock();
    }
  }

  /** As they are, for a request whose text alone is wanted. */
  private static void answer(Engine from, Event event) {
    if (event.kind() != Event.Kind.LOGITS) {
      return;
    }
    try {
      from.answer(event.request(), event.index(), null);
    } catch (TesseraException.NotFound e) {
      // It was cancelled meanwhile.
    }
  }

  private void fail(TesseraException thrown) {
    lock.lock();
    try {
      failure = thrown;
      for (Queue queue : queues.values()) {
        queue.changed.signalAll();
        if (queue.sink != null) {
          queue.sink.end(thrown);
        }
      }
    } finally {
      lock.unlock();
    }
  }
}
