"""Handles: closed ones and none are refused, calls in progress keep them, any thread and any order may free them."""
import copy
import gc
import os
import threading
import unittest
import weakref

import tessera
from common import MODEL, OPTIONS, TEXT, dataset, wait_for


class Handles(unittest.TestCase):
    def setUp(self):
        self.model = tessera.load(MODEL)

    def refused(self, text, call, *arguments, **options):
        with self.assertRaisesRegex(tessera.InvalidArgumentError, text):
            call(*arguments, **options)

    def test_none_and_other_types_are_refused(self):
        for kind in (tessera.Trainer, tessera.Generator, tessera.Scorer, tessera.Embedder, tessera.Plan, tessera.Chat):
            self.refused("model: found NoneType, wanted a Model", kind, None)
        self.refused("runtime: found str, wanted a Runtime", tessera.Generator, self.model, runtime="cpu")
        self.refused("tokenizer: found NoneType, wanted a Tokenizer", tessera.Dataset, TEXT, None)
        self.refused("dataset: found str, wanted a Dataset", tessera.Trainer, self.model, TEXT)
        with tessera.Trainer(self.model, dataset(self.model), **OPTIONS) as trainer:
            self.refused("model: found NoneType", trainer.store, None)
            self.refused("value: values: found NoneType", trainer.feed, "x", None)

    def test_what_is_closed_is_refused(self):
        data = dataset(self.model)
        closed = tessera.Trainer(self.model, data, **OPTIONS)
        closed.close()
        closed.close()
        for call in (closed.step, closed.evaluate, closed.report, closed.cancel, closed.__enter__):
            self.refused("the trainer is closed", call)
        self.refused("the trainer is closed", closed.store, self.model)
        data.close()
        self.refused("the dataset is closed", tessera.Trainer, self.model, data)
        lost = tessera.Tokenizer.of_bytes()
        lost.close()
        with self.assertRaisesRegex(ValueError, "the tokenizer is closed"):
            self.model.tokenizer = lost
        self.assertIsNotNone(self.model.tokenizer)
        self.model.tokenizer = None
        self.assertIsNone(self.model.tokenizer)
        with self.assertRaises(TypeError):
            copy.copy(self.model)

    def test_close_waits_for_calls_in_progress(self):
        for _ in range(10):
            trainer = tessera.Trainer(self.model, dataset(self.model), **OPTIONS)
            errors = []

            def steps():
                try:
                    for _ in trainer.steps(2):
                        pass
                except (tessera.InvalidArgumentError, tessera.CancelledError):
                    pass
                except BaseException as error:
                    errors.append(error)

            def cancels():
                try:
                    for _ in range(100):
                        trainer.cancel()
                except tessera.InvalidArgumentError:
                    pass

            threads = [threading.Thread(target=run) for run in (steps, cancels, trainer.close)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            self.assertEqual(errors, [])

    def test_threads_wait_for_their_turn(self):
        with tessera.Scorer(self.model) as scorer:
            ids = [list(range(1, 60)), list(range(60, 120))]
            wanted = [scorer.score([each]) for each in ids]
            wrong = []

            def scores(i):
                for _ in range(5):
                    if str(scorer.score([ids[i]], progress=lambda done: None)) != str(wanted[i]):
                        wrong.append(i)

            threads = [threading.Thread(target=scores, args=(i % 2,)) for i in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            self.assertEqual(wrong, [])

    def test_garbage_is_freed_in_any_order(self):
        for order in ((0, 1, 2, 3), (3, 2, 1, 0), (1, 3, 0, 2)):
            runtime = tessera.Runtime()
            model = tessera.load(MODEL, runtime=runtime)
            handles = [runtime, model, tessera.Generator(model, runtime=runtime),
                       tessera.Trainer(model, dataset(model), runtime=runtime, **OPTIONS)]
            pointers = [weakref.ref(handle._pointer) for handle in handles]
            del runtime, model
            for i in order:
                handles[i] = None
            gc.collect()
            wait_for(lambda: all(pointer() is None for pointer in pointers), "handles are garbage")

    def test_other_threads_may_free(self):
        held = [tessera.load(MODEL) for _ in range(20)]
        held += [tessera.Generator(model) for model in held[:5]]
        threads = [threading.Thread(target=lambda part: part.clear(), args=([held.pop(), held.pop()],)) for _ in range(10)]
        for thread in threads:
            thread.start()
        held.clear()
        for thread in threads:
            thread.join()

    def test_a_forked_child_is_told_and_may_make_its_own(self):
        generator = tessera.Generator(self.model)
        str(generator.generate("a", max_tokens=2))
        child = os.fork()
        if child == 0:
            failed = 1
            try:
                try:
                    str(generator.generate("a", max_tokens=2))
                except tessera.ForkedError:
                    mine = tessera.load(MODEL)
                    failed = 0 if len(mine.generate("a", max_tokens=2).read()) >= 0 else 2
            finally:
                os._exit(failed)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0)


if __name__ == "__main__":
    unittest.main()
