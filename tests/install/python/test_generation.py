"""Texts come piece by piece, in loops, asyncio and threads; they end when they are dropped, cancelled or interrupted."""
import asyncio
import gc
import threading
import unittest
import weakref

import tessera
from common import MODEL, interrupted

GREEDY = {"max_tokens": 8, "temperature": 0}


class Generation(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.model = tessera.load(MODEL)
        cls.text = cls.model.generate("A computer", **GREEDY).read()

    def test_pieces(self):
        with tessera.Generator(self.model, **GREEDY) as generator:
            stream = generator.generate("A computer")
            pieces = list(stream)
            self.assertEqual("".join(pieces), self.text)
            self.assertEqual(b"".join(piece.data for piece in pieces).decode("utf-8", "replace"), self.text)
            self.assertEqual((stream.text, stream.finish), (self.text, "length"))
            self.assertEqual(len(stream.tokens), 8)
            self.assertIsNone(stream.poll())
            self.assertEqual(generator.generate(list(b"A computer")).read(), self.text)
            short = generator.generate("A computer", max_tokens=2)
            self.assertEqual((short.read(), short.tokens), (short.text, stream.tokens[:2]))
            self.assertEqual(generator.generate("A computer").read(), self.text)
            self.assertEqual(generator.logits().shape, (256,))
            self.assertEqual(generator.report()["tokens"], 8)
        with tessera.Generator(self.model, trace=1, **GREEDY) as generator:
            generator.generate("A").read()
            self.assertTrue(generator.trace())
        samples = {str(self.model.generate("A", max_tokens=8, seed=seed)) for seed in (1, 2, 1)}
        self.assertEqual(len(samples), 2)
        stop = self.model.generate(list(b"A computer"), max_tokens=50, temperature=0, stop_ids=[stream.tokens[3]])
        self.assertEqual((stop.read(), stop.tokens, stop.finish), (stop.text, stream.tokens[:3], "stop"))
        self.assertEqual(self.model.generate("A", stop=["a", "b"], **GREEDY).finish, None)

    def test_one_generator_serves_texts_one_after_another(self):
        first = self.model.generate("A computer", **GREEDY)
        second = self.model.generate("A computer", **GREEDY)  # the first is in progress: another generator
        self.assertIsNot(first.generator, second.generator)
        self.assertEqual([str(first), str(second)], [self.text] * 2)
        self.assertIn(self.model.generate("A", **GREEDY).generator, (first.generator, second.generator))
        with tessera.Generator(self.model, **GREEDY) as generator:
            stale = generator.generate("A")
            generator.generate("B")
            with self.assertRaisesRegex(tessera.FailedPreconditionError, "another text"):
                next(stale)

    def test_asyncio(self):
        async def text():
            return "".join([piece async for piece in self.model.generate("A computer", **GREEDY)])

        async def several():
            return await asyncio.gather(text(), text(), self.model.generate("A computer", **GREEDY).aread())

        self.assertEqual(asyncio.run(several()), [self.text] * 3)

        async def cancelled():
            stream = self.model.generate("A", max_tokens=10 ** 6, context=64)
            task = asyncio.create_task(stream.aread())
            await asyncio.sleep(0)
            task.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await task
            stream.close()
            return stream.finish

        self.assertEqual(asyncio.run(cancelled()), "cancelled")

    def test_texts_that_are_dropped_end(self):
        dropped = self.model.generate("A", max_tokens=0)
        generator = weakref.ref(dropped.generator)
        next(dropped)
        del dropped
        gc.collect()
        self.assertIs(self.model.generate("A", max_tokens=1).generator, generator())
        with self.model.generate("A", max_tokens=0) as stream:
            next(stream)
        self.assertEqual(stream.finish, "cancelled")
        self.assertEqual(list(stream), [])
        generator = tessera.Generator(self.model, context=64)
        stream = generator.generate("A")
        cancel = threading.Thread(target=generator.cancel)
        cancel.start()
        self.assertLessEqual(len(stream.read()), 64)
        self.assertIn(stream.finish, ("cancelled", "length"))
        cancel.join()
        closed = generator.generate("A")
        generator.close()
        with self.assertRaisesRegex(ValueError, "the generator is closed"):
            next(closed)

    def test_ctrl_c_ends_a_wait(self):
        with tessera.Generator(self.model) as generator:
            with interrupted(0.1), self.assertRaises(KeyboardInterrupt):
                while True:
                    generator.generate("A").read()
            self.assertEqual(generator.generate("A computer", **GREEDY).read(), self.text)

    def test_threads(self):
        found = []
        threads = [threading.Thread(target=lambda: found.append(str(self.model.generate("A computer", **GREEDY))))
                   for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(found, [self.text] * 6)

    def test_scores(self):
        texts = [list(b"A computer"), list(b"is"), []]
        scores = self.model.score(texts)
        with tessera.Scorer(self.model) as scorer:
            shares = []
            self.assertEqual(str(scorer.score(texts, shares.append)), str(scores))
            self.assertEqual(shares[-1], 1)
            self.assertEqual(str(scorer.score(texts)), str(scores))
            self.assertEqual(scorer.report()["tokens"], 12)
            with self.assertRaises(ZeroDivisionError):
                scorer.score(texts, lambda done: 1 / 0)
        self.assertEqual([len(each.logprobs) for each in scores], [10, 2, 0])
        self.assertLess(scores[0].logprobs[1], 0)

    def test_embeddings(self):
        with tessera.Embedder(self.model, normalize=1) as embedder:
            rows = embedder.embed(["A computer", "is", "ä\0"])
            self.assertEqual((rows.shape, embedder.width, embedder.labels), ((3, 32), 32, []))
            self.assertEqual(embedder.embed(["is"]).tolist()[0], rows.tolist()[1])
            self.assertEqual(embedder.embed_tokens([list(b"is")]).tolist()[0], rows.tolist()[1])
            shares = []
            self.assertEqual(embedder.embed(["A computer", "is", "ä\0"], shares.append).tolist(), rows.tolist())
            self.assertEqual(shares[-1], 1)
            self.assertEqual(embedder.report()["texts"], 3)
            with self.assertRaises(ZeroDivisionError):
                embedder.embed(["a"], lambda done: 1 / 0)


if __name__ == "__main__":
    unittest.main()
