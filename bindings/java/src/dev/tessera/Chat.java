package dev.tessera;

import dev.tessera.raw.Raw;
import java.util.List;
import java.util.Map;

/**
 * A chat template: it turns the messages of a conversation into the text and the tokens that a model was trained on.
 * Immutable. Messages are {@link Message}s, Maps of what a template knows, or both; or a JSON array as text.
 */
public final class Chat extends Handle {
  /** One of a conversation. */
  public record Message(String role, String content) {}

  /** Tokens of a conversation, and of each whether the assistant says it. */
  public record Encoding(int[] ids, boolean[] assistant) {}

  private Chat(long pointer) {
    super("chat", Raw::tsr_chat_free, false, null, pointer);
  }

  /** The model's template. Options: name, template. */
  public Chat(Model model, Map<String, ?> options) {
    this(make(model, options));
  }

  private static long make(Model model, Map<String, ?> options) {
    try (Use use = use(model, "model"); OptionSet set = new OptionSet(options)) {
      return Native.made(out -> Raw.tsr_chat_new(use.pointer, set.pointer, out));
    }
  }

  /** A template's text. tokenizer may be null: then nothing can be encoded. */
  public static Chat of(String template, Tokenizer tokenizer) {
    byte[] text = Text.bytes("template", template);
    try (Use use = optional(tokenizer)) {
      return new Chat(Native.made(out -> Raw.tsr_chat_new_text(text, use.pointer, out)));
    }
  }

  /** The JSON of messages. */
  static String json(List<?> messages) {
    return Json.write(Native.required("messages", messages).stream()
        .map(given -> given instanceof Message message
            ? new java.util.TreeMap<>(Map.of("role", Native.required("role of a message", message.role()),
                "content", Native.required("content of a message", message.content())))
            : given)
        .toList());
  }

  /**
   * The text of a conversation. Options: add_generation_prompt, continue_final_message, tools, documents, variables, now.
   */
  public String render(List<?> messages, Map<String, ?> options) {
    return render(json(messages), options);
  }

  /** The same of JSON. */
  public String render(String messages, Map<String, ?> options) {
    byte[] given = Text.bytes("messages", messages);
    try (Use use = use(); OptionSet set = new OptionSet(options)) {
      return Native.text(use, out -> Raw.tsr_chat_render(use.pointer, set.pointer, given, out));
    }
  }

  /** JSON: the text, which bytes of it the messages made, and which the assistant says. */
  public String renderRanges(String messages, Map<String, ?> options) {
    byte[] given = Text.bytes("messages", messages);
    try (Use use = use(); OptionSet set = new OptionSet(options)) {
      return Native.text(use, out -> Raw.tsr_chat_render_ranges(use.pointer, set.pointer, given, out));
    }
  }

  /** The same of a List. */
  public String renderRanges(List<?> messages, Map<String, ?> options) {
    return renderRanges(json(messages), options);
  }

  /**
   * The conversation without its oldest turns, so that it has at most {@code mostTokens}, as JSON: "messages", "dropped" (count
   * of messages) and "tokens". What the system says stays, and so does the last turn.
   */
  public String fit(String messages, long mostTokens, Map<String, ?> options) {
    byte[] given = Text.bytes("messages", messages);
    try (Use use = use(); OptionSet set = new OptionSet(options)) {
      return Native.text(use, out -> Raw.tsr_chat_fit(use.pointer, set.pointer, given, mostTokens, out));
    }
  }

  /**
   * The message that a model's answer is, as JSON: its content, its reasoning, the tools that it calls, and as "cut_call" a
   * call within which it ends. The answer is what the pieces' texts make, with the control tokens of {@link #markers}
   * written out. Options: prompt, in_thinking, tools, partial, seed.
   */
  public String parse(String answer, Map<String, ?> options) {
    byte[] given = Text.bytes("answer", answer);
    try (Use use = use(); OptionSet set = new OptionSet(options)) {
      return Native.text(use, out -> Raw.tsr_chat_parse(use.pointer, set.pointer, given, out));
    }
  }

  /** The control tokens that {@link #parse} reads, and their texts. Their pieces have none. */
  public Map<Integer, String> markers() {
    try (Use use = use()) {
      Map<Integer, String> texts = new java.util.TreeMap<>();
      Json.object(Native.text(use, out -> Raw.tsr_chat_markers(use.pointer, out)))
          .forEach((token, text) -> texts.put(Integer.valueOf(token), (String) text));
      return texts;
    }
  }

  /** The tokens of a conversation, for {@link Generator#start(int[])}. */
  public int[] encode(List<?> messages, Map<String, ?> options) {
    return encode(json(messages), options);
  }

  /** The same of JSON. */
  public int[] encode(String messages, Map<String, ?> options) {
    byte[] given = Text.bytes("messages", messages);
    try (Use use = use(); OptionSet set = new OptionSet(options)) {
      return Native.ids(use, given.length + 1024,
          (ids, count) -> Raw.tsr_chat_encode(use.pointer, set.pointer, given, ids, null, count));
    }
  }

  /** The tokens, and which of them the assistant says: what a model is trained on. */
  public Encoding encodeAssistant(List<?> messages, Map<String, ?> options) {
    byte[] given = Text.bytes("messages", json(messages));
    byte[][] marks = new byte[1][];
    try (Use use = use(); OptionSet set = new OptionSet(options)) {
      int[] ids = Native.ids(use, given.length + 1024, (items, count) -> {
        marks[0] = new byte[items.length];
        return Raw.tsr_chat_encode(use.pointer, set.pointer, given, items, marks[0], count);
      });
      boolean[] assistant = new boolean[ids.length];
      for (int i = 0; i < ids.length; ++i) {
        assistant[i] = marks[0][i] != 0;
      }
      return new Encoding(ids, assistant);
    }
  }
}
