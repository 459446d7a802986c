package dev.tessera;

import java.nio.charset.StandardCharsets;
import java.nio.file.FileSystems;
import java.nio.file.Path;

/** Texts of Java as the UTF-8 that the library takes, and back. */
final class Text {
  private Text() {}

  /** UTF-8 of a text, which may hold NULs. Lone surrogates have no UTF-8, and are refused. */
  static byte[] bytes(String what, CharSequence text) {
    if (text == null) {
      throw TesseraException.invalid(what + " is null, wanted a text");
    }
    String string = text.toString();
    for (int i = 0; i < string.length(); ++i) {
      char found = string.charAt(i);
      if (!Character.isSurrogate(found)) {
        continue;
      }
      if (Character.isLowSurrogate(found) || i + 1 == string.length() || !Character.isLowSurrogate(string.charAt(i + 1))) {
        throw TesseraException.invalid(String.format(
            "%s: found the lone surrogate U+%04X at index %d, which is no character, wanted whole ones", what, (int) found, i));
      }
      ++i;
    }
    return string.getBytes(StandardCharsets.UTF_8);
  }

  /** UTF-8 of a text that C ends at its first NUL, so that it must have none. */
  static byte[] name(String what, CharSequence text) {
    byte[] bytes = bytes(what, text);
    for (int i = 0; i < bytes.length; ++i) {
      if (bytes[i] == 0) {
        throw TesseraException.invalid(what + ": found a NUL at byte " + i + ", wanted none");
      }
    }
    return bytes;
  }

  /** A path of the system's files. */
  static byte[] path(String what, Path path) {
    if (path == null) {
      throw TesseraException.invalid(what + " is null, wanted a path");
    }
    if (path.getFileSystem() != FileSystems.getDefault()) {
      throw TesseraException.invalid(what + ": found " + path.toUri() + ", wanted a path of the default file system; a model "
          + "elsewhere is read by Model.load of a channel");
    }
    return name(what, path.toString());
  }

  /** The text of UTF-8; bytes that are none become U+FFFD. */
  static String string(byte[] utf8) {
    return utf8 == null ? "" : new String(utf8, StandardCharsets.UTF_8);
  }
}
