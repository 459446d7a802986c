"""Texts: NULs, other bytes, surrogates and long ones cross whole or are refused; conversations become tokens."""
import os
import unittest

import tessera
from common import MODEL, folder

TEMPLATE = ("{% for m in messages %}<{{ m.role }}>{{ m.content }}</s>{% endfor %}"
            "{% if add_generation_prompt %}<assistant>{% endif %}")


class Texts(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.model = tessera.load(MODEL)
        cls.tokenizer = cls.model.tokenizer

    def test_texts_cross_whole(self):
        for text in ("", "a\0b", "\0", "näïve ☃ 𝔘", "x" * 100000):
            ids = self.tokenizer.encode(text)
            self.assertEqual(bytes(list(ids)), text.encode())
            self.assertEqual(self.tokenizer.decode(ids), text)
        self.assertEqual(self.tokenizer.decode_bytes([255, 0, 254]), b"\xff\0\xfe")
        self.assertEqual(self.tokenizer.decode([255, 0]), "\ufffd\0")
        self.assertEqual(self.tokenizer.decode([255], errors="surrogateescape"), "\udcff")
        self.assertEqual(bytes(list(self.tokenizer.encode(b"\xff\0"))), b"\xff\0")

    def test_several_texts_at_once(self):
        texts = ["a", "", "b\0c", "ä"]
        self.assertEqual([bytes(list(ids)) for ids in self.tokenizer.encode_batch(texts)], [text.encode() for text in texts])
        self.assertEqual(self.tokenizer.encode_batch([]), [])
        self.assertEqual(list(self.tokenizer.encode_ranges("abc", [(1, 2)]).begins), [0, 1, 2])
        with self.assertRaisesRegex(ValueError, "texts: found one str, wanted several"):
            self.tokenizer.encode_batch("ab")
        with self.assertRaises(tessera.InvalidArgumentError):
            self.tokenizer.encode_ranges("abc", [(2, 9)])

    def test_what_utf8_cannot_hold_is_refused(self):
        with self.assertRaisesRegex(tessera.InvalidArgumentError, r"text: found U\+D800.*character 1"):
            self.tokenizer.encode("a\ud800")
        with self.assertRaisesRegex(tessera.InvalidArgumentError, "prompt: found int|prompt: .*int32"):
            self.model.generate(3)
        for call in (tessera.load, tessera.check_path, tessera.verify, tessera.Tokenizer, self.model.save):
            with self.assertRaisesRegex(tessera.InvalidArgumentError, "NUL at byte 1"):
                call("a\0b")
        with self.assertRaisesRegex(tessera.InvalidArgumentError, "NUL at byte 1"):
            self.model.read("a\0b")
        with folder() as place:
            path = os.path.join(os.fsencode(place), b"\xff.tsr")  # no UTF-8
            self.model.save(path)
            self.assertEqual(tessera.load(os.fsdecode(path)).parameters(), self.model.parameters())

    def test_metadata(self):
        self.assertIsNone(self.model.metadata("nothing"))
        for value in ("x", "ä" * 3000):
            self.model.set_metadata("note", value)
            self.assertEqual(self.model.metadata("note"), value)
        self.model.set_metadata("note", None)
        self.assertIsNone(self.model.metadata("note"))

    def test_conversations(self):
        messages = [{"role": "user", "content": "Hi \"you\" ☃"}, {"role": "assistant", "content": "Yes"}]
        chat = tessera.Chat(self.model, template=TEMPLATE)
        text = "<user>Hi \"you\" ☃</s><assistant>Yes</s>"
        self.assertEqual(chat.render(messages), text)
        self.assertEqual(bytes(list(chat.encode(messages))), text.encode())
        ids, assistant = chat.encode_assistant(messages)
        self.assertEqual(bytes(i for i, mine in zip(ids, assistant) if mine)[:3], b"Yes")
        self.assertEqual(chat.render_ranges(messages)["text"], text)
        self.assertEqual(tessera.Chat.from_text(TEMPLATE).render(messages), text)
        calls = tessera.Chat.from_text(TEMPLATE + "{# <tool_call> </think> #}")
        message = calls.parse("<think>hm</think>Ok.<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1}}</tool_call>")
        self.assertEqual((message["reasoning_content"], message["content"]), ("hm", "Ok."))
        self.assertEqual(message["tool_calls"][0]["function"], {"name": "f", "arguments": {"a": 1}})
        self.assertEqual(calls.parse("hm</think>Ok.", in_thinking=True)["content"], "Ok.")
        self.assertEqual(calls.parse("Ok <tool", partial=True)["content"], "Ok")
        self.assertEqual(chat.markers(), {})
        with self.assertRaises(tessera.FailedPreconditionError):
            tessera.Chat.from_text(TEMPLATE).encode(messages)
        with self.assertRaisesRegex(ValueError, "messages: .*not JSON serializable"):
            chat.render([{"role": "user", "content": object()}])
        stream = self.model.chat(messages[:1], template=TEMPLATE, max_tokens=3, temperature=0)
        ids = chat.encode(messages[:1], add_generation_prompt=True)
        self.assertEqual(stream.read(), self.model.generate(ids, max_tokens=3, temperature=0).read())
        with self.assertRaises(LookupError):
            self.model.chat("Hi")

    def test_logs_and_reports(self):
        with tessera.Runtime(log_level="debug", log_capacity=100) as runtime:
            self.assertEqual(runtime.backends()["backends"][0]["name"], "cpu")
            tessera.Generator(self.model, runtime=runtime)
            for level, text in runtime.log():
                self.assertIsInstance(level, tessera.LogLevel)
                self.assertTrue(text)
            self.assertEqual(list(runtime.log()), [])
            devices = runtime.devices("cpu:3")
            self.assertEqual((len(devices), len(devices.info()["devices"])), (3, 3))
            with self.assertRaises(LookupError):
                tessera.Devices("abacus", runtime=runtime)


if __name__ == "__main__":
    unittest.main()
