"""Training, planning and the low level: steps, checkpoints, adapters, cancels, interrupts, programs."""
import gzip
import json
import math
import os
import threading
import unittest

import tessera
from common import MODEL, OPTIONS, TEXT, dataset, folder, interrupted


class Training(unittest.TestCase):
    def setUp(self):
        self.model = tessera.load(MODEL)

    def test_fine_tuning_in_one_call_is_that_in_many(self):
        steps = []
        with folder() as place:
            out = os.path.join(place, "tuned.tsr")
            tuned = tessera.finetune(MODEL, TEXT, out=out, steps=4, seq=32, progress=steps.append, lr=1e-2, **OPTIONS)
            self.assertEqual([step.step for step in steps], [1, 2, 3, 4])
            self.assertLess(steps[3].loss, steps[0].loss)
            with tessera.Trainer(self.model, dataset(self.model), steps=4, lr=1e-2, **OPTIONS) as trainer:
                self.assertEqual([step.loss for step in trainer.steps(4)], [step.loss for step in steps])
                trainer.save_model(self.model, os.path.join(place, "same.tsr"))
            with open(out, "rb") as one, open(os.path.join(place, "same.tsr"), "rb") as other:
                self.assertEqual(one.read(), other.read())
            self.assertEqual(str(tuned.generate("A", max_tokens=5, temperature=0)),
                             str(tessera.load(out).generate("A", max_tokens=5, temperature=0)))
            with self.assertRaisesRegex(tessera.ExistsError, "overwrite=True"):
                tessera.finetune(MODEL, TEXT, out=out, steps=1)
            tessera.finetune(MODEL, TEXT, out=out, steps=1, overwrite=True)
            tessera.check_run_paths(os.path.join(place, "other.tsr"))
            rows = os.path.join(place, "rows.json")
            with open(rows, "w") as file:
                file.write('[{"text": "' + "words " * 20 + '"}, {"text": "more words"}]')
            self.assertEqual(tessera.Dataset(rows, self.model.tokenizer, seq=16).info()["kinds"], {"text": 2})
            with self.assertRaisesRegex(ValueError, "rows of JSON"):
                tessera.check_text('{"text": "a"}', rows)
            with self.assertRaisesRegex(ValueError, "gunzip"):
                tessera.finetune(MODEL, self._gzip(place), steps=1)
            with self.assertRaises(ZeroDivisionError):
                tessera.finetune(MODEL, range(200), steps=4, seq=8, progress=lambda step: 1 / 0)
            with self.assertRaisesRegex(ValueError, "a Dataset and seq"):
                tessera.finetune(self.model, dataset(self.model), seq=16)
            self.assertIsInstance(tessera.finetune(MODEL, TEXT, steps=1), tessera.Model)
            with self.assertRaises(OSError):
                tessera.finetune(MODEL, TEXT, out=os.path.join(place, "no", "such", "folder.tsr"))
        text = str(self.model.generate("A", max_tokens=5, temperature=0))
        self.assertIs(tessera.finetune(self.model, dataset(self.model), steps=8, lr=1e-1, **OPTIONS), self.model)
        self.assertNotEqual(str(self.model.generate("A", max_tokens=5, temperature=0)), text)

    def _gzip(self, place):
        path = os.path.join(place, "rows.jsonl.gz")
        with gzip.open(path, "wt") as file:
            file.write('{"text": "a"}')
        return path

    def test_checkpoints(self):
        data = dataset(self.model, eval_fraction=0.2)
        with folder() as place, tessera.Trainer(self.model, data, eval_batches=2, trace=1, **OPTIONS) as trainer:
            checkpoint = os.path.join(place, "checkpoint")
            tessera.check_folder(checkpoint)
            trainer.step()
            self.assertTrue(trainer.trace())
            self.assertTrue(trainer.plan().trace())
            trainer.save(checkpoint)
            self.assertEqual(tessera.checkpoint_info(checkpoint)["step"], 1)
            with trainer.start_save(os.path.join(place, "noted"), best_loss=0.1, name="a") as saving:
                second = trainer.step().loss  # meanwhile
                saving.finish()
            noted = tessera.checkpoint_info(os.path.join(place, "noted"))
            self.assertEqual((noted["step"], noted["notes"]), (1, {"best_loss": "0.1", "name": "a"}))
            with tessera.Trainer(tessera.load(MODEL), data, eval_batches=2, **OPTIONS) as again:
                again.resume(checkpoint)
                self.assertEqual(again.step()[:2], (2, second))
                self.assertEqual(again.report()["step"], 2)
            name = self.model.parameters()[0]
            self.assertEqual(trainer.read(name + ".m").shape, self.model.read(name).shape)
            found = trainer.evaluate_all()
            self.assertEqual(found["loss"], trainer.evaluate())
            self.assertEqual(found["accuracy"], found["correct"] / found["labels"])
            trainer.store(self.model)
            self.assertEqual(bytes(trainer.read(name)), bytes(self.model.read(name)))
            # Texts of the weights being trained are those of the model that they were stored in.
            stored = str(self.model.generate("A", max_tokens=5, temperature=0))
            with (tessera.Engine(trainer, context=32, sequences=2) as engine,
                  tessera.Generator(trainer, context=32) as generator):
                self.assertEqual(engine.generate(["A"], max_tokens=5, temperature=0), [stored])
                self.assertEqual(str(generator.generate("A", max_tokens=5, temperature=0)), stored)
            for made in (tessera.Engine, tessera.Generator):
                with self.assertRaisesRegex(ValueError, "runtime"):
                    made(trainer, runtime=tessera.Runtime())
                with self.assertRaisesRegex(ValueError, "devices"):
                    made(trainer, devices="cpu:1")
            trainer.save_state(checkpoint, optimizer=False)
            trainer.load_state(checkpoint, optimizer=False)
            self.assertEqual(trainer.step().step, 1)
            with self.assertRaisesRegex(ValueError, "optimizer"):
                trainer.load_state(checkpoint)

    def test_run_logs(self):
        with folder() as place, tessera.Trainer(self.model, dataset(self.model, eval_fraction=0.2), steps=3, **OPTIONS) as trainer:
            metrics, report = os.path.join(place, "run.jsonl"), os.path.join(place, "run.html")
            with tessera.RunLog(trainer, metrics=metrics, tensorboard=os.path.join(place, "events"), report=report,
                                settings={"note": "mine"}) as log:
                for _ in trainer.steps(2):
                    log.step()
                with self.assertRaises(tessera.FailedPreconditionError):
                    log.step()
                loss = trainer.evaluate()
                log.evaluation(loss, 0.5)
                log.value("margin", 2)
                log.sample("Once", " upon a \0time")
                log.checkpoint(place)
                found = log.summary()
                self.assertEqual((found["step"], found["steps"], found["eval_loss"]), (2, 3, loss))
                self.assertGreater(found["limit"]["share"], 0)
                log.finish("enough")
            with open(metrics, encoding="utf-8") as file:
                lines = [json.loads(line) for line in file]
            self.assertEqual([line["kind"] for line in lines],
                             ["header", "step", "step", "evaluation", "value", "sample", "checkpoint", "end"])
            self.assertEqual(lines[0]["settings"]["note"], "mine")
            self.assertEqual((lines[5]["text"], lines[7]["outcome"]), (" upon a \0time", "enough"))
            self.assertTrue(os.listdir(os.path.join(place, "events")))
            with open(report, encoding="utf-8") as file:
                self.assertIn('"state":"enough"', file.read())
            with self.assertRaises(tessera.ExistsError):
                tessera.RunLog(trainer, metrics=report)

    def test_preferences(self):
        rows = "\n".join('{"prompt": "ab%d", "chosen": "cde", "rejected": "f%d"}' % (i, i) for i in range(6))
        data = tessera.Dataset.from_text(rows, self.model.tokenizer, kind="preference", seq=16, eval_fraction=0.3)
        shares = []
        with tessera.Trainer(self.model, data, progress=shares.append, loss="dpo", batch=2, lr=1e-2, warmup=0,
                             devices="cpu:2", parallel="dp=2") as trainer:
            self.assertEqual(shares[-1], 1)
            first, second = trainer.steps(2)
            self.assertAlmostEqual(first.loss, 0.693147, places=4)
            self.assertGreater(second.reward_margin, 0)
            self.assertAlmostEqual(second.reward_margin, second.chosen_reward - second.rejected_reward)
            trainer.evaluate()
            self.assertIn("reward_accuracy", trainer.report()["preference"])
        with self.assertRaisesRegex(tessera.InvalidArgumentError, "kind unpaired"):
            tessera.Trainer(self.model, data, loss="kto")
        with self.assertRaises(ZeroDivisionError):
            tessera.Trainer(self.model, data, loss="dpo", progress=lambda share: 1 / 0)

    def test_adapters(self):
        adapted = self.model.add_adapters(rank=2, on="block.*.q")
        self.assertEqual(adapted.info()["adapters"]["rank"], 2)
        tuned = tessera.finetune(adapted, dataset(adapted), steps=2, **OPTIONS)
        self.assertIsNone(tuned.merge_adapters().info()["adapters"])
        lora = tessera.finetune(self.model, dataset(self.model), steps=1, lora=4, **OPTIONS)
        self.assertEqual(lora.info()["adapters"]["rank"], 4)
        with folder() as place:
            lora.export(os.path.join(place, "adapter"), format="peft")
            self.assertEqual(self.model.load_adapters(os.path.join(place, "adapter")).info()["adapters"]["rank"], 4)
        start = self.model.add_adapters(rank=2, on="q_proj", layers="0", init="pissa", dropout=0.1).info()["adapters"]
        self.assertEqual((start["init"], start["dropout"]), ("pissa", "0.1"))

    def test_methods(self):
        report = tessera.plan_methods(self.model, dataset(self.model), adapters={"rank": 2}, **OPTIONS)
        self.assertEqual((report["method"], report["methods"][1]["method"]), ("full", "lora"))
        with self.assertRaises(tessera.OutOfMemoryError):
            tessera.plan_methods(self.model, memory_limit=1000, **OPTIONS)
        tuned = tessera.finetune(self.model, dataset(self.model), steps=1, method="qlora:q8_0", lora=2, **OPTIONS)
        self.assertEqual(tuned.info()["adapters"]["rank"], 2)

    def test_other_threads_cancel(self):
        with tessera.Trainer(self.model, dataset(self.model), **OPTIONS) as trainer:
            stop = threading.Event()

            def cancels():
                while not stop.wait(0.001):
                    trainer.cancel()

            thread = threading.Thread(target=cancels)
            thread.start()
            try:
                with self.assertRaises(tessera.CancelledError):
                    while True:
                        trainer.step()
            finally:
                stop.set()
                thread.join()

    def test_ctrl_c_ends_steps_and_plans(self):
        with tessera.Trainer(self.model, dataset(self.model), **OPTIONS) as trainer:
            with interrupted(0.1), self.assertRaises(KeyboardInterrupt):
                while True:
                    trainer.step()
        large = tessera.Model("llama:L=48,C=4096,H=32,KV=8,F=11008,V=32000,T=2048")
        with interrupted(0.1), self.assertRaises(KeyboardInterrupt):
            while True:
                tessera.Plan(large, devices="cpu:16", batch=64, memory_limit="64GiB")
        self.assertEqual(tessera.Plan(self.model, devices="cpu:1").info()["strategy"], "single")

    def test_plans(self):
        plan = tessera.Plan(self.model, parallel="dp=2", trace=1, **OPTIONS)
        info = plan.info()
        self.assertEqual((info["mesh"], len(info["devices"])), ("dp=2", 2))
        self.assertEqual(plan.explain()["strategy"], info["strategy"])
        self.assertIn("<html", plan.page())
        self.assertTrue(plan.trace())
        with folder() as place:
            path = os.path.join(place, "plan.txt")
            plan.save(path)
            with open(path, encoding="utf-8") as file:
                self.assertEqual(file.read(), str(plan))
            self.assertEqual(tessera.Plan(self.model, plan_file=path, **OPTIONS).info()["mesh"], "dp=2")
        with self.assertRaises(MemoryError):
            tessera.Plan(self.model, memory_limit=1000, **OPTIONS)
        options = {"cluster": "dgx-a100-80gb:8", "batch": 16}
        shorthand = "llama:L=4,C=256,H=4,KV=4,F=512,V=1000,T=128"
        found = tessera.estimate(shorthand, certificate=1, **options)
        self.assertTrue(tessera.check_certificate(found["certificate"])["valid"])
        self.assertIn("<html", tessera.estimate_page(shorthand, **options))

    def test_programs_and_sessions(self):
        graph = tessera.Graph()
        symbol = graph.symbol("B")
        x = graph.input("x", "f32", [symbol, 2])
        graph.scope("layer")
        w = graph.parameter("w", "f32", [2, 3])
        graph.rename(w, "weight")
        y = graph.node("matmul", x, w)
        graph.output("y", y)
        self.assertEqual(graph.type(y), (tessera.DType.f32, (symbol, 3)))
        self.assertEqual(graph.find("weight"), w)
        graph.set_trainable(w, False)
        self.assertIn("matmul", str(graph))
        self.assertEqual(str(tessera.Graph.parse(str(graph))), str(graph))
        self.assertEqual(graph.profile(batch=4)["ops"][0]["op"], "matmul")
        with self.assertRaisesRegex(LookupError, "matmul"):
            graph.node("matmull", x, w)
        devices = tessera.Devices("cpu:2")
        plan = tessera.Plan.for_graph(devices, graph, batch=4, parallel="dp=2")
        again = tessera.Plan.parse_for_graph(devices, graph, str(plan))
        with folder() as place:
            plan.save(os.path.join(place, "plan"))
            self.assertEqual(str(tessera.Plan.load_for_graph(devices, graph, os.path.join(place, "plan"))), str(again))
        program = tessera.Program(devices, {"forward": (graph, plan), "again": (graph, again)})
        self.assertEqual([entry["name"] for entry in program.info()["entries"]], ["forward", "again"])
        self.assertTrue(program.print(1))
        with tessera.Session(program, trace=1) as session:
            session.write("weight", tessera.Tensor.of([[1, 2, 3], [4, 5, 6]], "f32"))
            with self.assertRaises(tessera.FailedPreconditionError):
                session.fetch("forward", "y")
            session.feed("forward", "x", tessera.Tensor.of([[1, 0], [0, 1], [1, 1], [0, 0]], "f32"))
            session.run("forward")
            found = session.fetch("forward", "y")
            self.assertEqual(found.tolist(), [[1, 2, 3], [4, 5, 6], [5, 7, 9], [0, 0, 0]])
            self.assertEqual((found.name, session.read("weight").shape), ("y", (2, 3)))
            session.cancel()
            session.restore()
            self.assertTrue(session.trace())
            self.assertEqual(len(session.report()["devices"]), 2)
            model = tessera.Model.from_graph(graph, seed=3)
            session.write_model(model)
            self.assertEqual(bytes(session.read("weight")), bytes(model.read("weight")))
        with self.assertRaises(tessera.InvalidArgumentError):
            tessera.Program(devices, {})
        language = self.model.graph()
        loss = language.token_loss()
        self.assertTrue(str(loss.training(optimizer="sgd")) and str(loss.evaluation()) and str(language.segments()))
        self.assertTrue(str(language.decoding(context=16)))

    def test_adapters_side_by_side(self):
        options = {"devices": "cpu:1", "batch": 2, "seq": 8, "adapters": 2, "adapter_rank": 4, "warmup": 0,
                   "losses": "cross_entropy,gradient"}
        ids = list(range(8))
        rows = [tessera.Batch(ids * n, (ids[1:] + [-1]) * n, 8) for n in (3, 1)]
        alone = []
        with folder() as place:
            for order in ((0,), (1,), (0, 1)):
                with tessera.AdapterTrainer(self.model, **options) as trainer:
                    adapters = {i: trainer.add(rank=2 + i, seed=i) for i in order}
                    for i in order:
                        trainer.forward_backward(adapters[i], rows[i], scale=0.1)
                        trainer.update(adapters[i], lr=0.01)
                        trainer.forward(adapters[i], rows[i])
                    found = {(done.adapter, done.kind): done for done in trainer.finished()}
                    for i in order:
                        self.assertEqual(found[adapters[i], "update"].step, 1)
                        self.assertEqual(len(found[adapters[i], "forward"].logprobs), rows[i].count)
                        mine = (found[adapters[i], "forward_backward"].loss, found[adapters[i], "forward"].logprobs)
                        alone.append(mine) if len(order) == 1 else self.assertEqual(mine, alone[i])
                    tuned = trainer.model(adapters[order[0]])
                    name = next(n for n in tuned.parameters() if n.endswith(".lora_b"))
                    self.assertTrue(any(bytes(tuned.read(name))))
                    checkpoint = os.path.join(place, "adapter")
                    if len(order) == 2:
                        trainer.save(adapters[0], checkpoint)
                        trainer.drop(adapters[1])
                        bare = trainer.load(checkpoint, optimizer=False)
                        self.assertEqual(trainer.report()["adapters"][-1]["step"], 0)
                        huge = tessera.Batch(ids, ids[1:] + [-1], 8, weights=[3e38] * 8)
                        trainer.forward_backward(bare, huge)
                        trainer.forward(bare, rows[1])
                        self.assertTrue(math.isnan(trainer.next().loss))
                        self.assertIsNone(trainer.next().loss)
                        trainer.drop(bare)
                        again = trainer.load(checkpoint)
                        self.assertEqual(trainer.report()["adapters"][-1]["step"], 1)
                        number = trainer.backward(again, rows[1], [0.5] * rows[1].count)
                        self.assertEqual(trainer.next().number, number)
                        number = trainer.forward(again, rows[1])
                        trainer.cancel_pass(number)
                        trainer.update(again, lr=0.01)
                        self.assertIsNone(trainer.next().error)
                        trainer.update(again)
                        self.assertIsInstance(trainer.next().error, tessera.FailedPreconditionError)
                        with self.assertRaises(tessera.BusyError):
                            trainer.add()
                        trainer.cancel()

    def test_calibration(self):
        with self.assertRaises(ZeroDivisionError):
            tessera.Calibration(devices="cpu", seconds=0.1, progress=lambda done: 1 / 0)


if __name__ == "__main__":
    unittest.main()
