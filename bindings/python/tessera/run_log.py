"""RunLog: the course of a training run, in files for people and programs."""
from __future__ import annotations

import json
from typing import Any

from . import arguments, raw
from .arguments import Options
from .errors import check, text
from .handle import Handle, use
from .trainer import Trainer


class RunLog(Handle):
    """`RunLog(trainer, metrics="run.jsonl", tensorboard="runs/one", report="run.html")`, `step()` after every step of the
    trainer, `finish()`. step and evaluation use the trainer, which must not be closed before. Options: those, and
    report_seconds, steps, model, data, settings (a JSON object as text, or a dict)."""

    _free = raw.tsr_run_log_free
    _exclusive = True

    def __init__(self, trainer: Trainer, **options: Any):
        if isinstance(options.get("settings"), dict):
            options["settings"] = json.dumps(options["settings"])
        self._trainer = trainer
        with use(trainer, Trainer, "trainer") as t, Options(options) as o:
            self._pointer = self._made(raw.tsr_run_log_new(t, o))

    def step(self) -> None:
        """Adds the trainer's last step: once after each. Later calls log for that step."""
        with self._trainer._pointer, self._pointer as c:
            check(raw.tsr_run_log_step(c))

    def evaluation(self, loss: float, accuracy: float = float("nan")) -> None:
        """Adds a held-out loss, nats a token, and the share of tokens that are predicted, where it is known."""
        with self._trainer._pointer, self._pointer as c:
            check(raw.tsr_run_log_evaluation(c, loss, accuracy))

    def value(self, name: str, value: float) -> None:
        """Adds any other number by its name: "rewards/margin"."""
        with self._pointer as c:
            check(raw.tsr_run_log_value(c, arguments.text("name", name, nul=False), value))

    def sample(self, prompt: str, text: str) -> None:
        """Adds a prompt and the model's text after it; the first 64 KiB of each."""
        with self._pointer as c:
            check(raw.tsr_run_log_sample(c, arguments.text("prompt", prompt, nul=False), arguments.text("text", text)))

    def checkpoint(self, path: Any) -> None:
        """Adds a checkpoint that was written."""
        with self._pointer as c:
            check(raw.tsr_run_log_checkpoint(c, arguments.path("path", path)))

    def summary(self) -> dict[str, Any]:
        """The last and the best losses, speed, the time that is left, and the physical limit of a step."""
        with self._pointer as c:
            return json.loads(text(raw.tsr_run_log_summary(c)))

    def finish(self, outcome: str = "finished") -> None:
        """Completes the files. outcome says how the run ended."""
        with self._pointer as c:
            check(raw.tsr_run_log_finish(c, arguments.text("outcome", outcome, nul=False)))
