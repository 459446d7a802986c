"""Long work over files: progress rises to 1, what it raises and Ctrl-C end the work and leave nothing."""
import os
import unittest

import tessera
from common import MODEL, folder, interrupted


class Files(unittest.TestCase):
    def setUp(self):
        place = folder()
        self.addCleanup(place.cleanup)
        self.out, self.exported, self.matrix = (os.path.join(place.name, name) for name in ("out.tsr", "exported", "matrix.gguf"))
        self.shares = []

    def risen(self):
        self.assertEqual(self.shares, sorted(self.shares))
        self.assertEqual(self.shares.pop(), 1)
        self.shares.clear()

    def test_conversions(self):
        report = tessera.convert(MODEL, self.out, progress=self.shares.append, verify=True)
        self.risen()
        self.assertEqual(report["out"]["bytes"], os.path.getsize(self.out))
        tessera.verify(self.out)
        self.assertEqual(tessera.load(self.out, progress=self.shares.append, verify=True).parameters(),
                         tessera.load(MODEL).parameters())
        self.risen()
        self.assertEqual(tessera.convert(MODEL, self.out, type="q8_0")["quantization"]["type"], "q8_0")
        self.assertEqual(tessera.load(MODEL).quantize(self.out, "q4_0")["type"], "q4_0")
        with self.assertRaisesRegex(ValueError, "unknown type 'q4_km'"):
            tessera.load(MODEL).quantize(self.out, "q4_km")
        with self.assertRaisesRegex(ValueError, "is where the model is read from"):
            tessera.convert(MODEL, MODEL)

    def test_files_of_requests(self):
        place = folder()
        self.addCleanup(place.cleanup)
        requests, texts = os.path.join(place.name, "requests.jsonl"), os.path.join(place.name, "texts.jsonl")
        tessera.write_text(requests, '{"ids": [1, 2], "max_tokens": 3}\n{"ids": [1], "regex": "ab"}\n')
        report = tessera.generate_file(tessera.load(MODEL), requests, texts, ids=True, progress=self.shares.append, seed=1)
        self.risen()
        self.assertEqual((report["requests"], report["failed"]), (2, 0))
        self.assertEqual([line[:10] for line in tessera.read_text(texts).decode().splitlines()], ['{"line":1,', '{"line":2,'])
        tessera.write_text(requests, '{"prompt": 1}')
        with self.assertRaisesRegex(ValueError, "line 1: 'prompt' is '1', wanted a text"):
            tessera.generate_file(tessera.load(MODEL), requests, texts)
        self.assertEqual(tessera.word_hint("option", "learning_rate", ["lr"]), "did you mean 'lr'?")
        self.assertIn("bytes", tessera.memory_needs(tessera.load(MODEL))["inference"])

    def test_what_progress_raises_ends_the_work(self):
        model = tessera.load(MODEL)
        for work in (lambda: tessera.convert(MODEL, self.out, progress=lambda done: 1 / 0),
                     lambda: tessera.load(MODEL, progress=lambda done: 1 / 0),
                     lambda: tessera.export(MODEL, self.exported, progress=lambda done: 1 / 0),
                     lambda: tessera.imatrix(model, range(100), self.matrix, seq=32, progress=lambda done: 1 / 0)):
            with self.assertRaises(ZeroDivisionError):
                work()
            self.assertEqual(os.listdir(os.path.dirname(self.out)), [])

    def test_ctrl_c_ends_the_work(self):
        with interrupted(0.1), self.assertRaises(KeyboardInterrupt):
            while True:
                tessera.convert(MODEL, self.out, type="q8_0")
        with interrupted(0.1), self.assertRaises(KeyboardInterrupt):
            while True:
                tessera.load(MODEL)

    def test_exports(self):
        report = tessera.export(MODEL, self.exported, progress=self.shares.append, tokenizer=False)
        self.risen()
        self.assertEqual(report["format"], "hf")
        model = tessera.load(self.exported)
        self.assertEqual(model.info()["parameters"], 34976)
        self.assertIsNone(model.tokenizer)
        model.tokenizer = tessera.Tokenizer.of_bytes()
        gguf = self.exported + ".gguf"
        self.assertEqual(tessera.load(MODEL).export(gguf, format="gguf", tokenizer=0)["format"], "gguf")
        self.assertEqual(tessera.load(gguf).info()["file"]["format"], "gguf")

    def test_importance_matrices(self):
        report = tessera.imatrix(tessera.load(MODEL), range(100), self.matrix, progress=self.shares.append, seq=32)
        self.risen()
        self.assertEqual(report["windows"], 3)
        self.assertTrue(os.path.getsize(self.matrix))

    def test_paths_are_checked_before_the_work(self):
        tessera.check_path(self.out)
        with self.assertRaises(FileNotFoundError):
            tessera.check_path(os.path.join(self.out, "deeper", "model.tsr"))


if __name__ == "__main__":
    unittest.main()
