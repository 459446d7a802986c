package dev.tessera;

import dev.tessera.raw.Raw;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;

/** The options of one call as the library takes them. */
final class OptionSet implements AutoCloseable {
  final long pointer;

  /** null: no options. */
  OptionSet(Map<String, ?> options) {
    long[] made = new long[1];
    TesseraException.check(Raw.tsr_options_new(made));
    pointer = made[0];
    try {
      if (options != null) {
        options.forEach(this::set);
      }
    } catch (Throwable thrown) {
      close();
      throw thrown;
    }
  }

  private void set(String key, Object value) {
    byte[] name = Text.name("key of an option", key);
    String what = "option \"" + key + "\"";
    if (value instanceof Integer || value instanceof Long || value instanceof Short || value instanceof Byte) {
      TesseraException.check(Raw.tsr_options_set_i64(pointer, name, ((Number) value).longValue()));
    } else if (value instanceof Boolean flag) {
      TesseraException.check(Raw.tsr_options_set_i64(pointer, name, flag ? 1 : 0));
    } else if (value instanceof Double || value instanceof Float) {
      TesseraException.check(Raw.tsr_options_set_f64(pointer, name, ((Number) value).doubleValue()));
    } else if (value instanceof CharSequence text) {
      TesseraException.check(Raw.tsr_options_set_str(pointer, name, Text.name(what, text)));
    } else if (value instanceof Path path) {
      TesseraException.check(Raw.tsr_options_set_str(pointer, name, Text.path(what, path)));
    } else {
      TesseraException.check(Raw.tsr_options_set_i64_list(pointer, name, integers(what, value)));
    }
  }

  private static long[] integers(String what, Object value) {
    if (value instanceof long[] list) {
      return list;
    }
    if (value instanceof int[] list) {
      return java.util.Arrays.stream(list).asLongStream().toArray();
    }
    if (value instanceof List<?> list && list.stream().allMatch(item -> item instanceof Integer || item instanceof Long)) {
      return list.stream().mapToLong(item -> ((Number) item).longValue()).toArray();
    }
    throw TesseraException.invalid(what + ": found " + (value == null ? "null" : "a " + value.getClass().getName())
        + ", wanted an integer, a Boolean, a Double, a text, a Path, or integers in an array or a List");
  }

  @Override
  public void close() {
    Raw.tsr_options_free(pointer);
  }
}
