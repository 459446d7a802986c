"""Sequences as values, and an adapter for each request."""
import os
import unittest

import tessera
from common import MODEL, dataset, folder

GREEDY = {"max_tokens": 6, "temperature": 0}


class Sequences(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.model = tessera.load(MODEL)

    def test_sequences_are_values(self):
        with tessera.Engine(self.model, **GREEDY) as engine, folder() as work:
            request = engine.submit("A computer", keep=1, n=2, temperature=1.0)
            request.texts()
            first = request.sequence()
            with request.sequence(1) as other:
                self.assertEqual(len(other.tokens), 16)
            for call in (request.sequence, lambda: request.sequence(-1), lambda: engine.sequence(1 << 40)):
                with self.assertRaisesRegex(tessera.NotFoundError, "not kept"):
                    call()
            fork = first.fork()
            fork.rewind(12)
            self.assertEqual((len(fork.tokens), len(first.tokens)), (12, 16))
            self.assertEqual(first.tokens[:12], fork.tokens)
            for count in (0, 13, -1, 1 << 70, 1.5, None, "x"):
                with self.assertRaisesRegex(tessera.InvalidArgumentError, "wanted 1 to as many"):
                    fork.rewind(count)
            # It goes on as its tokens would, also in another engine, and from a file.
            text = engine.submit(ids=[*fork.tokens, ord("x")]).text()
            self.assertEqual(engine.submit(sequence=fork, ids=[ord("x")]).text(), text)
            path = os.path.join(work, "sequence")
            engine.save_sequence(fork, path)
            with tessera.Engine(self.model, **GREEDY) as elsewhere:
                self.assertEqual(elsewhere.submit(sequence=fork, ids=[ord("x")]).text(), text)
                restored = elsewhere.restore_sequence(path)
                self.assertEqual(elsewhere.submit(sequence=restored, ids=[ord("x")]).text(), text)
            self.assertEqual(restored.tokens, fork.tokens)  # without its engine
            for options in ({"prompt": "a"}, {"messages": []}, {"ids": [-1]}, {"ids": ["x"]}, {"ids": [1] * 10000}):
                with self.assertRaises(tessera.InvalidArgumentError):
                    engine.submit(sequence=fork, **options)
            for value in (1, "x", [], engine, self.model):
                for call in (lambda: engine.submit(sequence=value), lambda: engine.save_sequence(value, path)):
                    with self.assertRaisesRegex(tessera.InvalidArgumentError, "wanted a Sequence"):
                        call()
            with self.assertRaises(tessera.NotFoundError):
                engine.save_sequence(fork, os.path.join(path, "none"))
            with self.assertRaises(tessera.NotFoundError):
                engine.restore_sequence(os.path.join(work, "none"))
            for value in (None, 1 << 70, "a\0b"):
                with self.assertRaises(tessera.InvalidArgumentError):
                    engine.restore_sequence(value)
            with open(path, "r+b") as file:
                file.seek(os.path.getsize(path) // 2)
                byte = file.read(1)[0]
                file.seek(-1, os.SEEK_CUR)
                file.write(bytes([byte ^ 1]))
            with self.assertRaises(tessera.CorruptError):
                engine.restore_sequence(path)
            fork.close()
            fork.close()
            for call in (fork.fork, lambda: fork.tokens, lambda: fork.rewind(1), lambda: engine.submit(sequence=fork),
                         lambda: engine.save_sequence(fork, path), lambda: fork.__enter__()):
                with self.assertRaisesRegex(ValueError, "the sequence is closed"):
                    call()
        for call in (lambda: engine.sequence(0), lambda: engine.submit(sequence=first), lambda: engine.load_adapter(MODEL),
                     lambda: engine.save_sequence(first, path), lambda: engine.restore_sequence(path),
                     lambda: engine.drop_adapter(0)):
            with self.assertRaisesRegex(ValueError, "the engine is closed"):
                call()

    def test_requests_may_each_have_an_adapter(self):
        adapted = self.model.add_adapters(rank=2)
        with tessera.Trainer(adapted, dataset(adapted), batch=4, steps=10, lr=0.1) as trainer:
            for _ in range(10):
                trainer.step()
            trainer.store(adapted)
            with tessera.Engine(self.model, adapters=3, **GREEDY) as engine:
                texts = {engine.submit("A computer", adapter=engine.load_adapter(it)).text() for it in (adapted, trainer)}
                self.assertEqual(len(texts), 1)
                self.assertNotIn(engine.submit("A computer").text(), texts)
                with self.assertRaisesRegex(tessera.InvalidArgumentError, "no low-rank adapters"):
                    engine.load_adapter(self.model)
        with folder() as work, tessera.Engine(self.model, adapters=1, **GREEDY) as engine:
            path = os.path.join(work, "adapter")
            tessera.export(adapted, path, format="peft")
            plain = engine.submit("A computer").text()
            number = engine.load_adapter(path)
            request = engine.submit("A computer", adapter=number, keep=1)
            self.assertNotEqual(request.text(), plain)
            self.assertEqual(engine.submit("A computer").text(), plain)
            with self.assertRaisesRegex(tessera.UnsupportedError, "adapter"):
                engine.save_sequence(request.sequence(), path + ".kv")
            engine.drop_adapter(number)
            with self.assertRaises(tessera.NotFoundError):
                engine.drop_adapter(number)
            with self.assertRaises(tessera.TesseraError):
                engine.submit("A computer", adapter=number)
            with self.assertRaises(tessera.NotFoundError):
                engine.load_adapter(os.path.join(work, "none"))
            with self.assertRaises(tessera.InvalidArgumentError):
                engine.load_adapter(None)
            with tessera.Engine(self.model) as other, self.assertRaises(tessera.FailedPreconditionError):
                other.load_adapter(path)


if __name__ == "__main__":
    unittest.main()
