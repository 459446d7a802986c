"""Training runs: their events, results and checkpoints; what ends them, and how they go on."""
import json
import os
import threading
import time
import unittest

import tessera
from common import MODEL, OPTIONS, dataset, folder, interrupted

TRAINER = {"steps": 6, "lr": 1e-2, **OPTIONS}


class Runs(unittest.TestCase):
    def setUp(self):
        self.model = tessera.load(MODEL)
        self.data = dataset(self.model, eval_fraction=0.2)

    def trainer(self, **options):
        return tessera.Trainer(self.model, self.data, **{**TRAINER, **options})

    def test_a_run_tells_what_happens_and_writes_its_result(self):
        with self.trainer() as trainer:
            losses = [step.loss for step in trainer.steps(6)]
            loss = trainer.evaluate()
        with folder() as place, self.trainer() as trainer:
            out, metrics = os.path.join(place, "out.tsr"), os.path.join(place, "run.jsonl")
            options = {"out": out, "eval_every": 3, "keep_best": True, "keep": 2, "checkpoint_every": 2, "metrics": metrics,
                       "samples": ["A", "[B"], "sample_messages": [], "sample_tokens": 4, "settings": {"note": "mine"},
                       "model": "small"}
            tessera.check_run(self.model, self.data, **options)
            with tessera.Run(trainer, **options) as run:
                events = list(run)
                self.assertEqual(list(run), [])
                report = run.report()
                self.assertEqual(run.evaluate()["loss"], report["eval_loss"])
                run.load_best()
            self.assertEqual([event.loss for event in events if event.kind == "step"], losses)
            self.assertEqual([(event.step, event.details["prompt"]) for event in events if event.kind == "sample"],
                             [(3, "A"), (3, "[B"), (6, "A"), (6, "[B")])
            evaluations = [event for event in events if event.kind == "evaluation"]
            self.assertEqual(([event.step for event in evaluations], evaluations[1].loss), ([3, 6], loss))
            self.assertEqual((events[-1].kind, events[-1].details), ("end", {"outcome": "finished"}))
            self.assertEqual((report["losses"], report["out"], report["outcome"]), (losses, out, "finished"))
            self.assertEqual(tessera.resumed_folder(out), out + ".checkpoint")
            self.assertEqual(sorted(os.listdir(place)), ["out.tsr"] + ["out.tsr.checkpoint" + end for end in (
                "", ".best", ".step-4", ".step-6")] + ["run.jsonl"])
            with open(metrics, encoding="utf-8") as file:
                header = json.loads(file.readline())
            self.assertEqual((header["model"], header["settings"]["note"]), ("small", "mine"))
            with self.assertRaisesRegex(tessera.ExistsError, "option 'resume'"):
                tessera.check_run(**options)
            with self.assertRaisesRegex(ValueError, "eval_every"):
                tessera.check_run(None, dataset(self.model), eval_every=1)
            with self.assertRaisesRegex(ValueError, "min_delta"):
                tessera.Run(trainer, min_delta=0.1)
            with self.assertRaises(FileNotFoundError):
                tessera.resumed_folder(os.path.join(place, "none"))

    def test_stopped_runs_go_on(self):
        with folder() as place, self.trainer() as trainer:
            whole = tessera.Run(trainer, out=os.path.join(place, "whole.tsr")).finish()
            out = os.path.join(place, "out.tsr")
            with self.trainer() as first, tessera.Run(first, out=out) as run:
                for event in run:
                    if event.kind == "step" and event.step == 2:
                        run.save()
                        threading.Thread(target=run.stop).start()
                        time.sleep(0.05)
                self.assertEqual(event.details["outcome"], f"stopped at step {event.step}")
            with self.trainer() as second, tessera.Run(second, out=out, resume=out) as run:
                self.assertEqual(run.finish()["losses"], whole["losses"][event.step:])
            with open(out, "rb") as one, open(os.path.join(place, "whole.tsr"), "rb") as other:
                self.assertEqual(one.read(), other.read())
            with self.trainer() as third, tessera.Run(third) as run:
                self.assertIn("nothing of this run is kept", next(run).details["message"])
                with self.assertRaises(tessera.FailedPreconditionError):
                    run.save()
                with self.assertRaises(tessera.FailedPreconditionError):
                    run.load_best()
                run.finish()
                with self.assertRaises(tessera.NotFoundError):
                    run.load_best()

    def test_ctrl_c_saves_a_checkpoint(self):
        with folder() as place:
            for name, pause in (("call", 0), ("loop", 0.5)):
                out = os.path.join(place, name)
                with self.trainer(steps=100000) as trainer:
                    with interrupted(0.2), self.assertRaises(KeyboardInterrupt):
                        with tessera.Run(trainer, checkpoint=out, checkpoint_every=100000) as run:
                            for event in run:
                                if event.kind == "step":
                                    time.sleep(pause)
                    self.assertTrue(run.closed)
                    self.assertEqual(tessera.checkpoint_info(out)["step"], trainer.report()["step"])


if __name__ == "__main__":
    unittest.main()
