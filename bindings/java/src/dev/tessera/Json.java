package dev.tessera;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * Reads the reports of this package, for programs without a JSON library. Objects become Maps in the order of their keys,
 * arrays Lists, numbers Long or Double, texts String, and true, false and null themselves.
 */
public final class Json {
  private static final int DEEPEST = 512;

  private final String text;
  private int at = 0;

  private Json(String text) {
    this.text = text;
  }

  /** The object of a report. */
  @SuppressWarnings("unchecked")
  public static Map<String, Object> object(String text) {
    if (parse(text) instanceof Map<?, ?> map) {
      return (Map<String, Object>) map;
    }
    throw TesseraException.invalid("JSON: found no object, wanted one");
  }

  /** The value of a JSON text. */
  public static Object parse(String text) {
    if (text == null) {
      throw TesseraException.invalid("JSON is null, wanted a text");
    }
    Json json = new Json(text);
    Object value = json.value(0);
    json.space();
    if (json.at < text.length()) {
      throw json.wrong("the end");
    }
    return value;
  }

  private TesseraException wrong(String wanted) {
    String found = at < text.length() ? "'" + text.charAt(at) + "'" : "the end";
    return TesseraException.invalid("JSON: found " + found + " at index " + at + ", wanted " + wanted);
  }

  private void space() {
    while (at < text.length() && " \t\r\n".indexOf(text.charAt(at)) >= 0) {
      ++at;
    }
  }

  private boolean take(char wanted) {
    space();
    if (at < text.length() && text.charAt(at) == wanted) {
      ++at;
      return true;
    }
    return false;
  }

  private void need(char wanted) {
    if (!take(wanted)) {
      throw wrong("'" + wanted + "'");
    }
  }

  private Object value(int depth) {
    if (depth > DEEPEST) {
      throw TesseraException.invalid("JSON: found more than " + DEEPEST + " levels at index " + at + ", wanted fewer");
    }
    if (take('{')) {
      Map<String, Object> map = new LinkedHashMap<>();
      while (!take('}')) {
        if (!map.isEmpty()) {
          need(',');
        }
        need('"');
        String key = string();
        need(':');
        map.put(key, value(depth + 1));
      }
      return map;
    }
    if (take('[')) {
      List<Object> list = new ArrayList<>();
      while (!take(']')) {
        if (!list.isEmpty()) {
          need(',');
        }
        list.add(value(depth + 1));
      }
      return list;
    }
    if (take('"')) {
      return string();
    }
    return word();
  }

  private Object word() {
    int begin = at;
    while (at < text.length() && (Character.isLetterOrDigit(text.charAt(at)) || "+-.".indexOf(text.charAt(at)) >= 0)) {
      ++at;
    }
    String word = text.substring(begin, at);
    switch (word) {
      case "true":
        return true;
      case "false":
        return false;
      case "null":
        return null;
      default:
        try {
          return word.matches("-?\\d{1,18}") ? (Object) Long.valueOf(word) : Double.valueOf(word);
        } catch (NumberFormatException e) {
          at = begin;
          throw wrong("a value");
        }
    }
  }

  /** After the opening quotation mark. */
  private String string() {
    StringBuilder made = new StringBuilder();
    for (;;) {
      if (at >= text.length()) {
        throw wrong("'\"'");
      }
      char found = text.charAt(at++);
      if (found == '"') {
        return made.toString();
      }
      made.append(found == '\\' ? escaped() : found);
    }
  }

  private char escaped() {
    char found = at < text.length() ? text.charAt(at++) : 0;
    int simple = "\"\\/bfnrt".indexOf(found);
    if (simple >= 0 && found != 0) {
      return "\"\\/\b\f\n\r\t".charAt(simple);
    }
    if (found == 'u' && at + 4 <= text.length() && text.substring(at, at + 4).matches("[0-9a-fA-F]{4}")) {
      at += 4;
      return (char) Integer.parseInt(text.substring(at - 4, at), 16);
    }
    throw wrong("an escape of JSON");
  }

  /** JSON of Maps, Lists, texts, numbers, Booleans and null. */
  public static String write(Object value) {
    StringBuilder out = new StringBuilder();
    write(value, out, 0);
    return out.toString();
  }

  private static void write(Object value, StringBuilder out, int depth) {
    if (depth > DEEPEST) {
      throw TesseraException.invalid("JSON: found more than " + DEEPEST + " levels, wanted fewer");
    }
    if (value instanceof Map<?, ?> map) {
      String between = "{";
      for (Map.Entry<?, ?> entry : map.entrySet()) {
        out.append(between);
        quote(String.valueOf(entry.getKey()), out);
        out.append(':');
        write(entry.getValue(), out, depth + 1);
        between = ",";
      }
      out.append(map.isEmpty() ? "{}" : "}");
    } else if (value instanceof List<?> list) {
      String between = "[";
      for (Object item : list) {
        out.append(between);
        write(item, out, depth + 1);
        between = ",";
      }
      out.append(list.isEmpty() ? "[]" : "]");
    } else if (value instanceof CharSequence text) {
      quote(text.toString(), out);
    } else if (value == null || value instanceof Boolean || value instanceof Number) {
      if (value instanceof Double number && !Double.isFinite(number)) {
        throw TesseraException.invalid("JSON: found " + number + ", wanted a finite number");
      }
      out.append(value);
    } else {
      throw TesseraException.invalid("JSON: found a " + value.getClass().getName()
          + ", wanted Maps, Lists, texts, numbers, Booleans and null");
    }
  }

  private static void quote(String text, StringBuilder out) {
    out.append('"');
    for (int i = 0; i < text.length(); ++i) {
      char found = text.charAt(i);
      if (found == '"' || found == '\\') {
        out.append('\\').append(found);
      } else if (found < 0x20) {
        out.append(String.format("\\u%04x", (int) found));
      } else {
        out.append(found);
      }
    }
    out.append('"');
  }
}
