"""Many requests at once, in loops, threads and asyncio, or all in one place; what ends them; what is refused."""
import asyncio
import gc
import os
import selectors
import threading
import time
import unittest
import weakref

import tessera
from common import MODEL, interrupted, wait_for
from test_hostile import VALUES

TALK = ("{% for m in messages %}[{{ m.role }}]{{ m.content }};{% endfor %}"
        "{% if add_generation_prompt %}[assistant]{% endif %}")
PROMPTS = ["A computer", "is", "a\0b", "A computer is", "x"]
GREEDY = {"max_tokens": 12, "temperature": 0}


def dispatchers():
    return [thread for thread in threading.enumerate() if thread.name == "tessera-engine"]


def endless():
    """Whose texts take long."""
    model = tessera.Model("llama:L=2,C=64,H=4,F=128,V=256,T=8192", seed=1)
    model.tokenizer = tessera.Tokenizer.of_bytes()
    return tessera.Engine(model, context=4000, cache_tokens=8192, sequences=4)


class Engines(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.model = tessera.load(MODEL)

    def test_many_at_once_have_the_texts_of_one_at_a_time(self):
        with tessera.Engine(self.model, sequences=3, **GREEDY) as engine:
            together = engine.generate(PROMPTS)
            self.assertEqual([engine.submit(prompt).text() for prompt in PROMPTS], together)
            self.assertEqual(engine.generate([list(prompt.encode()) for prompt in PROMPTS]), together)
            found = [None] * 20

            def collect(i):
                found[i] = "".join(event.text for event in engine.submit(PROMPTS[i % 5]))

            threads = [threading.Thread(target=collect, args=(i,)) for i in range(len(found))]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            self.assertEqual(found, together * 4)
            self.assertEqual(engine.submit(ids=list(b"A computer")).text(), together[0])
            said = engine.submit("[user]Hi;[assistant]").text()
            for messages in ([{"role": "user", "content": "Hi"}], '[{"role": "user", "content": "Hi"}]'):
                self.assertEqual(str(engine.submit(messages=messages, template=TALK)), said)
            samples = engine.submit("A", n=3, temperature=1.5, seed=1).texts()
            self.assertEqual(len(set(samples)), 3)
            request = engine.submit("A computer", logprobs=1)
            events = list(request)
            tokens = [event for event in events if event.token >= 0]
            self.assertEqual((len(tokens), request.finish, request.texts()), (12, "length", [together[0]]))
            self.assertLess(tokens[0].details["logprob"], 0)
            self.assertEqual((events[-1].kind, events[-1].details["tokens"], events[-1].error), ("end", 12, None))
            self.assertTrue(engine.report()["batch_invariant"])
            wait_for(lambda: not dispatchers(), "the end of the thread that distributes")

    def test_asyncio(self):
        async def text(engine, prompt):
            return "".join([event.text async for event in engine.submit(prompt)])

        async def several():
            with tessera.Engine(self.model, **GREEDY) as engine:
                together = await asyncio.gather(*[text(engine, prompt) for prompt in PROMPTS],
                                                *[engine.submit(prompt).atext() for prompt in PROMPTS])
                self.assertEqual(together[:5], together[5:])
                self.assertEqual(await engine.submit(PROMPTS[0]), together[0])
                return together[:5]

        found = asyncio.run(several())
        with tessera.Engine(self.model, **GREEDY) as engine:
            self.assertEqual(engine.generate(PROMPTS), found)

        async def cancelled():
            with endless() as engine:
                request = engine.submit("A")
                with self.assertRaises(TimeoutError):
                    await asyncio.wait_for(request.atext(), 0.02)
                async for event in request:
                    last = event
                self.assertEqual(last.finish, "cancelled")
                self.assertTrue(await engine.submit("A", max_tokens=3))
                waiting = asyncio.create_task(engine.submit("A").atext())
                await asyncio.sleep(0.01)
                engine.close()
                with self.assertRaisesRegex(tessera.InvalidArgumentError, "closed"):
                    await waiting

        asyncio.run(cancelled())

        async def by_descriptor():
            with tessera.Engine(self.model, n=2, **GREEDY) as engine:
                loop, ended = asyncio.get_running_loop(), asyncio.Event()
                texts, ends = {}, []

                def read():
                    while (event := engine.next(0)) is not None:
                        texts[event.request, event.index] = texts.get((event.request, event.index), "") + event.text
                        if event.kind == "end":
                            ends.append(event)
                        if len(ends) == 4:
                            ended.set()

                loop.add_reader(engine.descriptor, read)
                for prompt in PROMPTS[:2]:
                    engine.submit(prompt)
                await ended.wait()
                loop.remove_reader(engine.descriptor)
                return texts

        texts = asyncio.run(by_descriptor())
        self.assertEqual([texts[0, 0], texts[1, 1]], found[:2])

    def test_events_in_one_place_or_each_to_its_request(self):
        with tessera.Engine(self.model, n=2, **GREEDY) as engine:
            self.assertIsNone(engine.next())
            self.assertIsNone(engine.next(0.001))
            one, two = engine.submit("A computer", prompt_logprobs=0), engine.submit("is", n=1)
            self.assertEqual((one.number, two.number), (0, 1))
            events = list(engine.events())
            ends = sorted((event.request, event.index) for event in events if event.kind == "end")
            self.assertEqual(ends, [(0, 0), (0, 1), (1, 0)])
            self.assertEqual([event.request for event in events if event.kind == "prompt"], [0])
            for call in (lambda: next(one), one.text, one.texts, lambda: asyncio.run(two.atext())):
                with self.assertRaisesRegex(tessera.FailedPreconditionError, "by next or events"):
                    call()
            with selectors.DefaultSelector() as selector:
                selector.register(engine, selectors.EVENT_READ)
                self.assertEqual(selector.select(0), [])
                engine.submit("A", n=1, max_tokens=1)
                self.assertTrue(selector.select(10))
                self.assertEqual(engine.next(0).kind, "token")
        with tessera.Engine(self.model, max_tokens=1) as engine:
            engine.submit("A").text()
            for call in (engine.next, lambda: next(engine.events())):
                with self.assertRaisesRegex(tessera.FailedPreconditionError, "by its requests"):
                    call()
        failed = tessera.Event("end", 0, 0, -1, "", "failed", {"error": {"code": 5, "message": "no room"}})
        self.assertIsInstance(failed.error, tessera.OutOfMemoryError)
        self.assertEqual(str(failed.error), "no room")

    def test_ends(self):
        engine = endless()
        other = engine.submit("A", max_tokens=5)
        request = engine.submit("A computer")
        canceller = threading.Thread(target=request.cancel)
        next(request)
        canceller.start()
        self.assertEqual([event.finish for event in request][-1], "cancelled")
        canceller.join()
        with engine.submit("A") as request:
            next(request)
        self.assertEqual(list(request)[-1].finish, "cancelled")
        with interrupted(0.05), self.assertRaises(KeyboardInterrupt):
            engine.generate(["A", "B"])
        self.assertTrue(other.text())
        engine.cancel(1 << 40)
        engine.cancel(-1)
        # Who waits hears of the close, even where nothing would ever come.
        waiting, asking = engine.submit("A"), engine.submit("A", logits=1)
        self.assertEqual(next(asking).kind, "logits")
        closer = threading.Timer(0.02, engine.close)
        closer.start()
        for each in (asking, waiting):
            with self.assertRaisesRegex(tessera.InvalidArgumentError, "the engine is closed"):
                for _ in each:
                    pass
        closer.join()
        for call in (lambda: engine.submit("A"), lambda: engine.submit(ids=[1]), lambda: engine.submit(messages=[]),
                     engine.report, lambda: engine.descriptor, lambda: engine.logits(0), lambda: engine.answer(0),
                     lambda: engine.generate(["A"]), waiting.text, lambda: engine.__enter__()):
            with self.assertRaisesRegex(ValueError, "the engine is closed"):
                call()
        waiting.cancel()
        engine.close()
        wait_for(lambda: not dispatchers(), "the end of the thread that distributes")

    def test_dropped_engines_end(self):
        engine = endless()
        next(engine.submit("A"))
        gone = weakref.ref(engine)
        del engine
        wait_for(lambda: gc.collect() >= 0 and gone() is None and not dispatchers(), "the end of an engine that is garbage")

    def test_forked_children_are_refused(self):
        with endless() as engine:
            request = engine.submit("A")
            next(request)
            read, write = os.pipe()
            import warnings
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)
                child = os.fork()
            if child == 0:
                try:
                    for _ in request:
                        pass
                except tessera.ForkedError:
                    os.write(write, b"refused")
                finally:
                    os._exit(0)
            os.close(write)
            self.assertEqual(os.read(read, 10), b"refused")
            os.close(read)
            self.assertEqual(os.waitpid(child, 0)[1], 0)
            request.cancel()

    def test_what_is_wrong_does_no_harm_to_others(self):
        with tessera.Engine(self.model, **GREEDY) as engine:
            alone = engine.submit("A computer").text()
            right = engine.submit("A computer")
            for options in ({}, {"prompt": "a", "ids": [1]}, {"prompt": ""}, {"prompt": "a", "n": 0}, {"prompt": "a", "n": "x"},
                            {"prompt": "x" * 1000}, {"prompt": "a", "maximum_tokens": 1}, {"ids": [1, 256]}, {"ids": []},
                            {"messages": [object()]}, {"prompt": "a", "grammar": "x ::="}):
                with self.assertRaises(tessera.InvalidArgumentError):
                    engine.submit(**options)
            with self.assertRaises(tessera.InvalidArgumentError):
                engine.generate("one")
            with self.assertRaises(tessera.NotFoundError):
                engine.logits(0)
            for value in VALUES:
                for call in (lambda: engine.submit(value), lambda: engine.submit(ids=value),
                             lambda: engine.submit(messages=value), lambda: engine.submit("a", n=value),
                             lambda: engine.submit("a", stop=value), lambda: engine.generate(value),
                             lambda: engine.answer(0, 0, value), lambda: engine.logits(value), lambda: engine.cancel(value)):
                    try:
                        found = call()
                    except (tessera.TesseraError, TypeError, ValueError, OverflowError) as error:
                        self.assertNotIsInstance(error, tessera.InternalError)
                    else:
                        if isinstance(found, tessera.Request):
                            found.cancel()
            self.assertEqual(right.text(), alone)

    def test_logits_may_be_changed(self):
        with tessera.Engine(self.model, **GREEDY) as engine:
            plain = engine.submit("A computer").text()
            self.assertEqual(engine.submit("A computer", logits=1).text(), plain)
            self.assertEqual(asyncio.run(engine.submit("A computer", logits=1).atext()), plain)
            request, text = engine.submit("A computer", logits=1), ""
            for event in request:
                text += event.text
                if event.kind == "logits":
                    logits = request.logits(event.index)
                    self.assertEqual(len(logits), 256)
                    with self.assertRaises(tessera.InvalidArgumentError):
                        request.answer(event.index, logits[:3])
                    request.answer(event.index, [value if i == ord("x") else float("-inf") for i, value in enumerate(logits)])
            self.assertEqual(text, "x" * 12)

    def test_vectors_and_scores_of_prompts(self):
        with tessera.Engine(self.model, embeddings=1, n=2, **GREEDY) as engine, tessera.Embedder(self.model) as embedder:
            text, vector, scored = (engine.submit("A computer", max_tokens=3), engine.submit("A computer", embed=True),
                                    engine.submit(ids=list(b"A computer"), score_from=2))
            hidden = engine.submit(ids=list(b"A computer"), embed=1, pooling="none").embedding()
            row = vector.embedding()
            self.assertEqual(row.shape, (1, embedder.width))
            for found, wanted in zip(row.tolist()[0], embedder.embed(["A computer"]).tolist()[0]):
                self.assertAlmostEqual(found, wanted, delta=1e-4)
            self.assertEqual(hidden.shape, (10, embedder.width))
            scores = scored.scores()
            wanted = tessera.score(self.model, [list(b"A computer")], bos="none")[0]
            for found, other in zip(scores.logprobs, wanted.logprobs[2:]):
                self.assertAlmostEqual(found, other, delta=1e-4)
            self.assertEqual(scores.greedy, wanted.greedy[2:])
            self.assertEqual(len(text.texts()), 2)
            with self.assertRaises(tessera.NotFoundError):
                vector.embedding()
            with self.assertRaises(tessera.InvalidArgumentError):
                engine.submit("a", embed=1, max_tokens=3)


if __name__ == "__main__":
    unittest.main()
