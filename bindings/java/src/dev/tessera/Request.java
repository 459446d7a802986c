package dev.tessera;

import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.NoSuchElementException;
import java.util.Optional;
import java.util.Spliterator;
import java.util.Spliterators;
import java.util.concurrent.CompletableFuture;
import java.util.stream.Stream;
import java.util.stream.StreamSupport;

/**
 * A request of an {@link Engine}. Its events are collected once: by {@link #events} or {@link #stream}, on one thread at a
 * time, or by {@link #text} or {@link #texts}.
 */
public final class Request {
  private final Engine engine;
  private final long number;
  private final EventRouter.Queue queue;

  Request(Engine engine, long number, EventRouter.Queue queue) {
    this.engine = engine;
    this.number = number;
    this.queue = queue;
  }

  /** What its events have as {@link Event#request}: 0 for the engine's first. */
  public long number() {
    return number;
  }

  /**
   * Its events as they come, until all its texts have ended. After the END of a text that failed the exception is thrown. An
   * interrupt of the thread, or a {@link Cancellation} that it runs under, cancels the request.
   */
  public Iterator<Event> events() {
    return new Iterator<>() {
      private Optional<Event> ready = Optional.empty();
      private Optional<TesseraException> failure = Optional.empty();
      private boolean complete = false;

      @Override
      public boolean hasNext() {
        if (ready.isEmpty() && !complete) {
          failure.ifPresent(thrown -> {
            throw thrown;
          });
          ready = engine.router().next(engine, Request.this, queue);
          complete = ready.isEmpty();
        }
        return ready.isPresent();
      }

      @Override
      public Event next() {
        if (!hasNext()) {
          throw new NoSuchElementException("the request is complete");
        }
        Event event = ready.get();
        ready = Optional.empty();
        failure = failure.or(event::failure);
        return event;
      }
    };
  }

  /** The same as a stream. Closing it cancels the request. */
  public Stream<Event> stream() {
    return StreamSupport.stream(Spliterators.spliteratorUnknownSize(events(), Spliterator.ORDERED | Spliterator.NONNULL), false)
        .onClose(() -> {
          engine.router().drop(queue);
          cancel();
        });
  }

  /**
   * Its first text, once all are complete; of a request that was cancelled what there is of it. A future that is cancelled, or
   * completed with an exception, cancels the request. Logits that the request asks for are answered as they are.
   */
  public CompletableFuture<String> text() {
    CompletableFuture<String> first = new CompletableFuture<>();
    collect(first, texts -> texts.get(0));
    return first;
  }

  /** All its texts, likewise. */
  public CompletableFuture<List<String>> texts() {
    CompletableFuture<List<String>> all = new CompletableFuture<>();
    collect(all, texts -> texts);
    return all;
  }

  /** {@link Engine#embedding} of this request, once it is complete. */
  public CompletableFuture<float[][]> embedding() {
    CompletableFuture<float[][]> rows = new CompletableFuture<>();
    collect(rows, texts -> engine.embedding(number));
    return rows;
  }

  /** {@link Engine#scores} of this request, once it is complete. */
  public CompletableFuture<Scorer.Scores> scores() {
    CompletableFuture<Scorer.Scores> scores = new CompletableFuture<>();
    collect(scores, texts -> engine.scores(number));
    return scores;
  }

  private <T> void collect(CompletableFuture<T> future, java.util.function.Function<List<String>, T> result) {
    engine.router().collect(engine, queue, new Texts(future, result));
    future.whenComplete((value, thrown) -> {
      if (thrown != null) {
        cancel();
      }
    });
  }

  /** Collects texts of events for a future, which others complete: what hangs on it must not hold up other requests. */
  private final class Texts implements EventRouter.Sink {
    private final List<StringBuilder> texts = new ArrayList<>();
    private final java.util.function.Consumer<TesseraException> end;
    private TesseraException failure = null;

    <T> Texts(CompletableFuture<T> future, java.util.function.Function<List<String>, T> result) {
      end = thrown -> future.defaultExecutor().execute(() -> {
        if (thrown != null) {
          future.completeExceptionally(thrown);
        } else {
          try {
            future.complete(result.apply(texts.stream().map(StringBuilder::toString).toList()));
          } catch (RuntimeException none) {
            future.completeExceptionally(none);
          }
        }
      });
    }

    @Override
    public void add(Event event) {
      while (texts.size() <= event.index()) {
        texts.add(new StringBuilder());
      }
      texts.get(event.index()).append(event.text());
      if (failure == null) {
        failure = event.failure().orElse(null);
      }
    }

    @Override
    public void end(TesseraException thrown) {
      end.accept(thrown == null ? failure : thrown);
    }
  }

  /** Ends it, with {@link Generator.Finish#CANCELLED}. Any thread. */
  public void cancel() {
    engine.cancel(number);
  }

  /** {@link Engine#sequence} of one of its texts. */
  public Sequence sequence(int index) {
    return engine.sequence(number, index);
  }

  /** The logits that one of its texts waits with since its LOGITS: [V], as the model gives them. */
  public float[] logits(int index) {
    return engine.logits(number, index);
  }

  /** Lets that text go on with these logits, minus infinity excluding a token; null: as they are. */
  public void answer(int index, float[] logits) {
    engine.answer(number, index, logits);
  }
}
