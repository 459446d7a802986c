package dev.tessera;

import dev.tessera.raw.Raw;
import java.nio.charset.StandardCharsets;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.OptionalLong;

/**
 * What every method of this package throws where the library refuses or fails. The message says what was found, what was
 * wanted and what to do; {@link #code} says of what kind the error is, and so does the subclass.
 */
public class TesseraException extends RuntimeException {
  private static final long serialVersionUID = 1;

  /** Kinds of errors. */
  public enum Code {
    /** A value of the caller's is wrong. */
    INVALID_ARGUMENT,
    /** A file, tensor, op, device or backend does not exist. */
    NOT_FOUND,
    /** A file does not hold what its format promises. */
    CORRUPT,
    /** Valid, but not something that this build or backend does. */
    UNSUPPORTED,
    /** An allocation failed, or a plan cannot fit the memory limit. */
    OUT_OF_MEMORY,
    /** The operating system, or a {@link ModelSource}, refused a read or a write. */
    IO,
    /** As asked for. */
    CANCELLED,
    /** Another device failed first. */
    ABORTED,
    /** Not in this state: nothing fed, not done yet, no tokenizer. */
    FAILED_PRECONDITION,
    /** No progress for too long. */
    TIMEOUT,
    /** A bug in Tessera or in a plugin; please report the message. */
    INTERNAL,
    /** A loss, gradient or result is no finite number; nothing was changed by it. */
    NOT_FINITE,
    /** The values on the devices are lost: resume, restore, or make the object again. */
    VALUES_LOST,
    /** In use by another thread, handle or process: again later. */
    BUSY,
    /** What is there would be overwritten: say that it may be, or name another place. */
    EXISTS,
    /** A file in use was written to since it was opened: open it again. */
    CHANGED,
    /** A forked child: make the runtime after forking. */
    FORKED;

    /** The value of tsr_code. */
    public int number() {
      return ordinal() + 1;
    }

    /** Its name in the C library: "invalid_argument". */
    public String text() {
      return Text.string(Raw.tsr_code_name(number()));
    }
  }

  private final Code code;
  @SuppressWarnings("serial")  // those of java.util that it is are
  private Map<String, Long> numbers = Collections.emptyMap();

  TesseraException(Code code, String message, Throwable cause) {
    super(message, cause);
    this.code = code;
  }

  /** What kind of error it is. */
  public Code code() {
    return code;
  }

  /**
   * A number that the message says in words; empty where the error has none of that name. Of {@link OutOfMemory}: needed_bytes
   * (what the plan or tensor takes), limit_bytes (the limit that it does not fit), smallest_limit_bytes (the least memory_limit,
   * of a device, with which there is a plan), smallest_devices (the fewest devices that would do with the limit given).
   */
  public OptionalLong number(String key) {
    Long value = numbers.get(key);
    return value == null ? OptionalLong.empty() : OptionalLong.of(value);
  }

  /** All of them; it cannot be changed. */
  public Map<String, Long> numbers() {
    return numbers;
  }

  /** Throws unless {@code status} is success. */
  static void check(long status) {
    check(status, null);
  }

  /** The same; {@code source}, where there is one, tells why a read failed. */
  static void check(long status, dev.tessera.raw.Callbacks.Source source) {
    if (status == 0) {
      return;
    }
    try {
      TesseraException thrown = of(code(Raw.tsr_status_code(status)), Text.string(Raw.tsr_status_message(status)),
          source == null ? null : source.takeFailure());
      thrown.numbers = numbersOf(status);
      throw thrown;
    } finally {
      Raw.tsr_status_free(status);
    }
  }

  /** The code of a value of tsr_code. */
  static Code code(int number) {
    return number >= 1 && number <= Code.values().length ? Code.values()[number - 1] : Code.INTERNAL;
  }

  private static Map<String, Long> numbersOf(long status) {
    Map<String, Long> numbers = new LinkedHashMap<>();
    byte[] key;
    for (int i = 0; (key = Raw.tsr_status_number_key(status, i)) != null; ++i) {
      long[] value = new long[1];
      if (Raw.tsr_status_number(status, key, value) != 0) {
        numbers.put(new String(key, StandardCharsets.UTF_8), value[0]);
      }
    }
    return Collections.unmodifiableMap(numbers);
  }

  static TesseraException invalid(String message) {
    return new InvalidArgument(message, null);
  }

  static TesseraException of(Code code, String message, Throwable cause) {
    return switch (code) {
      case INVALID_ARGUMENT -> new InvalidArgument(message, cause);
      case NOT_FOUND -> new NotFound(message, cause);
      case CORRUPT -> new Corrupt(message, cause);
      case UNSUPPORTED -> new Unsupported(message, cause);
      case OUT_OF_MEMORY -> new OutOfMemory(message, cause);
      case IO -> new Io(message, cause);
      case CANCELLED -> new Cancelled(message, cause);
      case ABORTED -> new Aborted(message, cause);
      case FAILED_PRECONDITION -> new FailedPrecondition(message, cause);
      case TIMEOUT -> new Timeout(message, cause);
      case INTERNAL -> new Internal(message, cause);
      case NOT_FINITE -> new NotFinite(message, cause);
      case VALUES_LOST -> new ValuesLost(message, cause);
      case BUSY -> new Busy(message, cause);
      case EXISTS -> new Exists(message, cause);
      case CHANGED -> new Changed(message, cause);
      case FORKED -> new Forked(message, cause);
    };
  }

  /** {@link Code#INVALID_ARGUMENT}. */
  public static final class InvalidArgument extends TesseraException {
    private static final long serialVersionUID = 1;

    InvalidArgument(String message, Throwable cause) {
      super(Code.INVALID_ARGUMENT, message, cause);
    }
  }

  /** {@link Code#NOT_FOUND}. */
  public static final class NotFound extends TesseraException {
    private static final long serialVersionUID = 1;

    NotFound(String message, Throwable cause) {
      super(Code.NOT_FOUND, message, cause);
    }
  }

  /** {@link Code#CORRUPT}. */
  public static final class Corrupt extends TesseraException {
    private static final long serialVersionUID = 1;

    Corrupt(String message, Throwable cause) {
      super(Code.CORRUPT, message, cause);
    }
  }

  /** {@link Code#UNSUPPORTED}. */
  public static final class Unsupported extends TesseraException {
    private static final long serialVersionUID = 1;

    Unsupported(String message, Throwable cause) {
      super(Code.UNSUPPORTED, message, cause);
    }
  }

  /** {@link Code#OUT_OF_MEMORY}. */
  public static final class OutOfMemory extends TesseraException {
    private static final long serialVersionUID = 1;

    OutOfMemory(String message, Throwable cause) {
      super(Code.OUT_OF_MEMORY, message, cause);
    }
  }

  /** {@link Code#IO}. */
  public static final class Io extends TesseraException {
    private static final long serialVersionUID = 1;

    Io(String message, Throwable cause) {
      super(Code.IO, message, cause);
    }
  }

  /** {@link Code#CANCELLED}. */
  public static final class Cancelled extends TesseraException {
    private static final long serialVersionUID = 1;

    Cancelled(String message, Throwable cause) {
      super(Code.CANCELLED, message, cause);
    }
  }

  /** {@link Code#ABORTED}. */
  public static final class Aborted extends TesseraException {
    private static final long serialVersionUID = 1;

    Aborted(String message, Throwable cause) {
      super(Code.ABORTED, message, cause);
    }
  }

  /** {@link Code#FAILED_PRECONDITION}. */
  public static final class FailedPrecondition extends TesseraException {
    private static final long serialVersionUID = 1;

    FailedPrecondition(String message, Throwable cause) {
      super(Code.FAILED_PRECONDITION, message, cause);
    }
  }

  /** {@link Code#TIMEOUT}. */
  public static final class Timeout extends TesseraException {
    private static final long serialVersionUID = 1;

    Timeout(String message, Throwable cause) {
      super(Code.TIMEOUT, message, cause);
    }
  }

  /** {@link Code#INTERNAL}. */
  public static final class Internal extends TesseraException {
    private static final long serialVersionUID = 1;

    Internal(String message, Throwable cause) {
      super(Code.INTERNAL, message, cause);
    }
  }

  /** {@link Code#NOT_FINITE}. */
  public static final class NotFinite extends TesseraException {
    private static final long serialVersionUID = 1;

    NotFinite(String message, Throwable cause) {
      super(Code.NOT_FINITE, message, cause);
    }
  }

  /** {@link Code#VALUES_LOST}. */
  public static final class ValuesLost extends TesseraException {
    private static final long serialVersionUID = 1;

    ValuesLost(String message, Throwable cause) {
      super(Code.VALUES_LOST, message, cause);
    }
  }

  /** {@link Code#BUSY}. */
  public static final class Busy extends TesseraException {
    private static final long serialVersionUID = 1;

    Busy(String message, Throwable cause) {
      super(Code.BUSY, message, cause);
    }
  }

  /** {@link Code#EXISTS}. */
  public static final class Exists extends TesseraException {
    private static final long serialVersionUID = 1;

    Exists(String message, Throwable cause) {
      super(Code.EXISTS, message, cause);
    }
  }

  /** {@link Code#CHANGED}. */
  public static final class Changed extends TesseraException {
    private static final long serialVersionUID = 1;

    Changed(String message, Throwable cause) {
      super(Code.CHANGED, message, cause);
    }
  }

  /** {@link Code#FORKED}. */
  public static final class Forked extends TesseraException {
    private static final long serialVersionUID = 1;

    Forked(String message, Throwable cause) {
      super(Code.FORKED, message, cause);
    }
  }
}
