import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.tessera.Chat;
import dev.tessera.Dataset;
import dev.tessera.Generator;
import dev.tessera.Json;
import dev.tessera.Model;
import dev.tessera.Runtime;
import dev.tessera.TesseraException;
import dev.tessera.Tessera;
import dev.tessera.Tokenizer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;

final class TextsTest {
  @Test
  @DisplayName("texts of nothing, with NULs and of any character cross both ways")
  void cross() {
    try (Tokenizer tokenizer = Tokenizer.bytes()) {
      for (String text : List.of("", "a\0b", "\0", "ä€\uD83D\uDE00", "\uFFFF")) {
        assertEquals(text.getBytes(StandardCharsets.UTF_8).length, tokenizer.encode(text).length);
        assertEquals(text, tokenizer.decode(tokenizer.encode(text)));
      }
      assertArrayEquals(new byte[] {(byte) 0xff, 0, (byte) 0xc3}, tokenizer.decodeBytes(0xff, 0, 0xc3));
      assertEquals("\uFFFD\0\uFFFD", tokenizer.decode(0xff, 0, 0xc3));
      List<int[]> all = tokenizer.encodeAll(List.of("ab", "", "ä"), 2);
      assertArrayEquals(new int[] {'a', 'b'}, all.get(0));
      assertEquals(0, all.get(1).length);
      assertArrayEquals(new int[] {0xc3, 0xa4}, all.get(2));
      Tokenizer.Encoding ranges = tokenizer.encodeRanges("abc", List.of(new Tokenizer.Range(0, 1)), Tokenizer.Encode.SPECIAL);
      assertArrayEquals(new long[] {0, 1, 2}, ranges.begins());
      assertEquals(256, tokenizer.vocabularySize());
    }
  }

  @Test
  @DisplayName("lone surrogates, and NULs where C would end, are refused")
  void refused() {
    try (Tokenizer tokenizer = Tokenizer.bytes(); Runtime runtime = Given.runtime(); Model model = Given.model()) {
      Given.invalid("lone surrogate U+D800 at index 1", () -> tokenizer.encode("a\uD800"));
      Given.invalid("lone surrogate U+DC00 at index 0", () -> tokenizer.encode("\uDC00\uD800"));
      Given.invalid("NUL at byte 1", () -> new Runtime(Map.of("a\0b", 1)));
      Given.invalid("option \"devices\": found a NUL at byte 5",
          () -> new Generator(runtime, model, Map.of("devices", "cpu:1\0")));
      Given.invalid("NUL", () -> model.metadata("a\0"));
      Given.invalid("text is null", () -> tokenizer.encode(null));
      Given.invalid("path is null", () -> Model.load((Path) null));
      Given.invalid("wanted an integer, a Boolean", () -> new Runtime(Map.of("threads", new Object())));
      Given.invalid("number 1 is null", () -> tokenizer.encodeAll(java.util.Arrays.asList("a", null), 1));
    }
  }

  @Test
  @DisplayName("error texts arrive whole, each kind as its own exception")
  void errors() {
    String name = "x".repeat(200) + "ä\uD83D\uDE00";
    try (Model model = Given.model()) {
      TesseraException thrown = Given.refused(TesseraException.NotFound.class, name, () -> model.read(name));
      assertEquals(TesseraException.Code.NOT_FOUND, thrown.code());
      assertEquals("not_found", thrown.code().text());
      assertEquals(2, thrown.code().number());
      Given.invalid("threadz", () -> new Runtime(Map.of("threadz", 1)));
      Given.refused(TesseraException.NotFound.class, "nowhere.tsr", () -> Model.load(Path.of("nowhere.tsr")));
      Given.refused(TesseraException.Corrupt.class, "", () -> dev.tessera.ModelFiles.verify(Given.TEXT));
      Given.refused(TesseraException.Unsupported.class, "", () -> Tessera.checkVersion(990000));
      Tessera.checkVersion(Tessera.version());
      model.setMetadata("note", "ä\uD83D\uDE00");
      assertEquals("ä\uD83D\uDE00", model.metadata("note").orElseThrow());
      model.setMetadata("note", "");
      assertTrue(model.metadata("note").isEmpty());
    }
  }

  @Test
  @DisplayName("conversations become texts and tokens")
  void chats() {
    String template = "{% for m in messages %}{{ m.role }}:{% if m.role == 'assistant' %}{% generation %}{{ m.content }}"
        + "{% endgeneration %}{% else %}{{ m.content }}{% endif %};{% endfor %}";
    List<Chat.Message> messages = List.of(new Chat.Message("user", "a\"\0\n\uD83D\uDE00"), new Chat.Message("assistant", "yes"));
    try (Tokenizer tokenizer = Tokenizer.bytes(); Chat chat = Chat.of(template, tokenizer)) {
      String text = "user:a\"\0\n\uD83D\uDE00;assistant:yes;";
      assertEquals(text, chat.render(messages, null));
      assertEquals(text, tokenizer.decode(chat.encode(messages, null)));
      assertEquals(text, Json.object(chat.renderRanges(messages, null)).get("text"));
      Chat.Encoding encoding = chat.encodeAssistant(messages, null);
      int said = 0;
      for (int i = 0; i < encoding.ids().length; ++i) {
        said += encoding.assistant()[i] ? 1 : 0;
      }
      assertEquals(3, said);
      assertEquals("user:x;", chat.render(List.of(Map.of("role", "user", "content", "x")), null));
      Given.invalid("", () -> chat.render("{", null));
      assertEquals("{\"role\":\"assistant\",\"content\":\"yes\"}", chat.parse("yes", null));
      assertEquals(Map.of(), chat.markers());
    }
    try (Chat chat = Chat.of("x", null)) {
      Given.refused(TesseraException.FailedPrecondition.class, "", () -> chat.encode("[]", null));
    }
  }

  @Test
  @DisplayName("texts that nest deeply are refused, also on small stacks")
  void deep() throws InterruptedException {
    List<Throwable> thrown = new java.util.concurrent.CopyOnWriteArrayList<>();
    Thread small = new Thread(null, () -> {
      String many = "(".repeat(100000);
      for (String template : List.of("{{ " + many, "{% macro f(n) %}{{ f(n + 1) }}{% endmacro %}{{ f(1) }}", "{{ messages|tojson }}")) {
        try (Chat chat = Chat.of(template, null)) {
          chat.render("[{\"role\": \"user\", \"content\": " + "[".repeat(100000) + "]".repeat(100000) + "}]", null);
        } catch (Throwable e) {
          thrown.add(e);
        }
        try (Chat chat = Chat.of(template, null)) {
          chat.render(List.of(new Chat.Message("user", "x")), null);
        } catch (Throwable e) {
          thrown.add(e);
        }
      }
    }, "small", 256 << 10);
    small.start();
    small.join();
    assertEquals(5, thrown.size());
    thrown.forEach(each -> assertTrue(each instanceof TesseraException.InvalidArgument, each::toString));
  }

  @Test
  @DisplayName("JSON is read and written, and what is none refused")
  void json() {
    Object value = Json.parse(" {\"a\": [1, -2.5e3, \"\\u00e4\\n\\\"\", true, false, null], \"b\": {}, \"c\": []} ");
    assertEquals("{\"a\":[1,-2500.0,\"ä\\u000a\\\"\",true,false,null],\"b\":{},\"c\":[]}", Json.write(value));
    assertEquals(value, Json.parse(Json.write(value)));
    for (String wrong : List.of("", "{", "[1,]", "{\"a\"}", "tru", "1 2", "\"\\x\"", "\"", "[".repeat(100000), "\"\\u12\"")) {
      Given.invalid("JSON", () -> Json.parse(wrong));
    }
    Given.invalid("JSON", () -> Json.write(new Object()));
    try (Tokenizer tokenizer = Tokenizer.bytes();
        Dataset dataset = Dataset.ofText("some text, again and again, for a few samples", tokenizer, Map.of("seq", 4))) {
      assertEquals(4L, Json.object(dataset.info()).get("seq"));
      assertEquals(10, dataset.batch(0, 2).length);
    }
  }
}
