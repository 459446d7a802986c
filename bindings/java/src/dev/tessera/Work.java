package dev.tessera;

import java.util.function.LongConsumer;

/** Long work of the library, inside one call of this package. */
final class Work extends Handle {
  Work(String noun, LongConsumer free, long pointer) {
    super(noun, free, true, null, pointer);
  }
}
