package dev.tessera;

import dev.tessera.raw.Callbacks;
import java.util.function.LongConsumer;

/** Long work of the library, inside one call of this package. */
final class Work extends Handle {
  Work(String noun, LongConsumer free, long pointer) {
    this(noun, free, null, pointer);
  }

  /** source: what the values of a model that it works on are read from, or null. */
  Work(String noun, LongConsumer free, Callbacks.Source source, long pointer) {
    super(noun, free, true, source, pointer);
  }
}
