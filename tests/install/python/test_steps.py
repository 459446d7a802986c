"""Long work over datasets, plans, checkpoints and models in memory: progress rises to 1; what it raises, Ctrl-C and cancels
end the work, and leave nothing."""
import os
import threading
import unittest

import tessera
from common import MODEL, OPTIONS, TEXT, dataset, folder, interrupted


class Steps(unittest.TestCase):
    def setUp(self):
        place = folder()
        self.addCleanup(place.cleanup)
        self.place = place.name
        self.out = os.path.join(place.name, "out")
        self.model = tessera.load(MODEL)
        self.shares = []

    def risen(self):
        self.assertEqual(self.shares, sorted(self.shares))
        self.assertEqual(self.shares.pop(), 1)
        self.assertTrue(all(0 <= share < 1 for share in self.shares))
        self.shares.clear()

    def on_thread(self, call):
        """Elsewhere than in the main thread, where there are no interrupts and so no need of steps."""
        thread = threading.Thread(target=call)
        thread.start()
        thread.join()

    def content(self, write, *arguments, **options):
        write(*arguments, self.out, **options)
        with open(self.out, "rb") as file:
            data = file.read()
        os.remove(self.out)
        return data

    def test_datasets(self):
        tokenizer, read = self.model.tokenizer, []
        with open(TEXT, "rb") as file:
            text = file.read()
        for progress in (None, self.shares.append):
            read.append(tessera.Dataset(TEXT, tokenizer, seq=32, progress=progress))
            read.append(tessera.Dataset.from_text(text, tokenizer, seq=32, progress=progress))
        self.on_thread(lambda: read.append(tessera.Dataset(TEXT, tokenizer, seq=32)))
        self.on_thread(lambda: read.append(tessera.Dataset.from_text(text, tokenizer, seq=32)))
        self.assertEqual(self.shares.count(1), 2)
        for data in read:
            self.assertEqual((data.info(), data.batch(3, 4)), (read[0].info(), read[0].batch(3, 4)))
        self.shares.clear()
        tessera.Dataset.from_text(b"A computer. " * (3 << 20), tokenizer, seq=32, progress=self.shares.append)
        self.risen()
        with self.assertRaises(FileNotFoundError):
            tessera.Dataset(self.out, tokenizer, progress=self.shares.append)
        with self.assertRaisesRegex(ValueError, "unknown option 'sek'"):
            tessera.Dataset.from_text("A", tokenizer, sek=3)
        with self.assertRaisesRegex(ValueError, "runtime: found str"):
            tessera.Dataset(TEXT, tokenizer, runtime="cpu")
        with self.assertRaises(ZeroDivisionError):
            tessera.Dataset(TEXT, tokenizer, progress=lambda done: 1 / 0)
        with interrupted(0.1), self.assertRaises(KeyboardInterrupt):
            while True:
                tessera.Dataset(TEXT, tokenizer)
        with interrupted(0.1), self.assertRaises(KeyboardInterrupt):
            tessera.Dataset.from_text(b"A computer. " * (4 << 20), tokenizer, seq=32)

    def test_a_runtime_cancels_datasets(self):
        with tessera.Runtime() as runtime:
            def progress(done):
                self.shares.append(done)
                threading.Timer(0.02, runtime.cancel).start()

            with self.assertRaises(tessera.CancelledError):
                while True:
                    tessera.Dataset.from_text(b"A computer. " * (3 << 20), self.model.tokenizer, seq=32, runtime=runtime,
                                              progress=progress)

    def test_plans(self):
        with tessera.Plan(self.model, progress=self.shares.append, **OPTIONS) as plan:
            self.risen()
            self.assertEqual(str(plan), str(tessera.Plan(self.model, **OPTIONS)))
        graph = tessera.Graph.parse("graph {\n symbol B\n input x: f32[B, 2]\n y = tanh(x) : f32[B, 2]\n output y = y\n}")
        devices = tessera.Devices("cpu:2")
        plan = tessera.Plan.for_graph(devices, graph, batch=4, progress=self.shares.append)
        self.risen()
        self.assertEqual(str(plan), str(tessera.Plan.for_graph(devices, graph, batch=4)))
        with self.assertRaises(MemoryError) as caught:
            tessera.Plan(self.model, memory_limit="4KiB", devices="cpu:1", progress=self.shares.append)
        self.assertEqual(caught.exception.numbers["limit_bytes"], 4 << 10)
        large = tessera.Model("llama:L=48,C=4096,H=32,KV=8,F=11008,V=32000,T=2048")
        options = {"devices": "cpu:16", "batch": 64, "memory_limit": "64GiB"}
        with self.assertRaises(ZeroDivisionError):
            tessera.Plan(large, progress=lambda done: 1 / (done - done), **options)
        with interrupted(0.1), self.assertRaises(KeyboardInterrupt):
            tessera.Plan(large, progress=self.shares.append, **options)
        with tessera.Runtime() as runtime, self.assertRaises(tessera.CancelledError):
            threading.Timer(0.15, runtime.cancel).start()
            tessera.Plan(large, runtime=runtime, progress=self.shares.append, **options)

    def test_models_in_memory(self):
        for model in (self.model, tessera.Model("llama:L=1,C=16,H=2,KV=2,F=16,V=64,T=16", seed=3)):
            with_steps = self.content(model.save, progress=self.shares.append)
            self.risen()
            without = []
            self.on_thread(lambda: without.append(self.content(model.save)))
            self.assertEqual(with_steps, without[0])
            self.assertEqual(self.content(model.save), with_steps)
        with open(MODEL, "rb") as file:
            self.assertEqual(self.content(self.model.save), file.read())
        small = self.content(self.model.save, compress=True, verify=True, progress=self.shares.append)
        self.risen()
        self.assertLess(len(small), os.path.getsize(MODEL))
        self.assertEqual(self.content(self.model.quantize, type="q8_0"),
                         self.content(self.model.quantize, type="q8_0", progress=self.shares.append))
        self.risen()
        self.assertEqual(self.model.quantize(self.out, "q8_0"),
                         self.model.quantize(self.out, "q8_0", progress=self.shares.append))
        os.remove(self.out)
        for kind in (None, ""):
            with self.assertRaises(ValueError):
                self.model.quantize(self.out, kind, progress=self.shares.append)
        for call in (self.model.save, lambda *it, **options: self.model.quantize(*it, "q8_0", **options)):
            with self.assertRaises(ZeroDivisionError):
                call(self.out, progress=lambda done: 1 / 0)
            with interrupted(0.1), self.assertRaises(KeyboardInterrupt):
                while True:
                    call(self.out)
            self.assertLessEqual(set(os.listdir(self.place)), {"out"})
            if os.path.exists(self.out):
                tessera.verify(self.out)
                os.remove(self.out)
        with self.assertRaises(FileNotFoundError):
            self.model.save(os.path.join(self.out, "deeper"), progress=self.shares.append)

    def test_trained_models(self):
        with tessera.Trainer(self.model, dataset(self.model), **OPTIONS) as trainer:
            trainer.step()
            with_steps = self.content(trainer.save_model, self.model, progress=self.shares.append)
            self.risen()
            without = []
            self.on_thread(lambda: without.append(self.content(trainer.save_model, self.model)))
            self.assertEqual(with_steps, without[0])
            self.assertEqual(self.content(trainer.save_model, self.model), with_steps)
            with self.assertRaises(ZeroDivisionError):
                trainer.save_model(self.model, self.out, progress=lambda done: 1 / 0)
            with interrupted(0.1), self.assertRaises(KeyboardInterrupt):
                while True:
                    trainer.save_model(self.model, self.out)
            self.assertLessEqual(set(os.listdir(self.place)), {"out"})
            # What uses the trainer meanwhile is refused, and the trainer goes on afterwards.
            with self.assertRaisesRegex(tessera.BusyError, "the trainer is used by"):
                trainer.save_model(self.model, self.out, progress=lambda done: trainer.step())
            self.assertEqual(trainer.step().step, 2)
            trainer.store(self.model)
            self.assertNotEqual(self.content(self.model.save), with_steps)

    def test_checkpoints(self):
        data = dataset(self.model)
        with tessera.Trainer(self.model, data, **OPTIONS) as trainer:
            trainer.step()
            trainer.save(self.out, progress=self.shares.append)
            self.risen()
            plain = os.path.join(self.place, "plain")
            trainer.save(plain)
            self.assertEqual(sorted(os.listdir(plain)), sorted(os.listdir(self.out)))
            second = trainer.step().loss
            with tessera.Trainer(tessera.load(MODEL), data, **OPTIONS) as again:
                again.resume(self.out)
                self.assertEqual(again.step()[:2], (2, second))
            with self.assertRaises(ZeroDivisionError):
                trainer.save(self.out, progress=lambda done: 1 / 0)
            with self.assertRaisesRegex(tessera.ExistsError, "is no part of a checkpoint"):
                trainer.save(self.place, progress=self.shares.append)
            with interrupted(0.1), self.assertRaises(KeyboardInterrupt):
                while True:
                    trainer.save(self.out, progress=self.shares.append)
            stop = threading.Event()

            def cancels():
                while not stop.wait(0.001):
                    trainer.cancel()

            thread = threading.Thread(target=cancels)
            thread.start()
            try:
                with self.assertRaises(tessera.CancelledError):
                    while True:
                        trainer.save(self.out, progress=self.shares.append)
            finally:
                stop.set()
                thread.join()
            self.assertEqual(tessera.checkpoint_info(self.out)["step"], 2)
            self.assertEqual(sorted(os.listdir(self.place)), ["out", "plain"])
            self.assertEqual(trainer.step().step, 3)


if __name__ == "__main__":
    unittest.main()
