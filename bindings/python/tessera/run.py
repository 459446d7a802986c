"""Run: a training from its first step to its result."""
from __future__ import annotations

import contextlib
import dataclasses
import json
from typing import Any, Callable, Iterator, TypeVar

from . import arguments, raw
from .arguments import Options
from .dataset import Dataset
from .errors import TesseraError, check, result, text
from .handle import Handle, use, use_optional
from .model import Model
from .trainer import Trainer
from .work import interruptible

Result = TypeVar("Result")

_KIND = {raw.TSR_RUN_END: "end", raw.TSR_RUN_STEP: "step", raw.TSR_RUN_EVALUATION: "evaluation", raw.TSR_RUN_SAMPLE: "sample",
         raw.TSR_RUN_CHECKPOINT: "checkpoint", raw.TSR_RUN_PROGRESS: "progress", raw.TSR_RUN_NOTE: "note",
         raw.TSR_RUN_WARNING: "warning"}


@dataclasses.dataclass(frozen=True, slots=True)
class RunEvent:
    """What has happened in a run."""

    kind: str  #: "step", "evaluation", "sample", "checkpoint", "progress", "note", "warning" or "end"
    step: int  #: steps that the trainer has made then
    loss: float  #: of "step" and "evaluation"; else 0
    details: dict[str, Any]  #: what the header lists under TSR_RUN_*


class Run(Handle):
    """`Run(trainer, out="tuned.tsr", eval_every=50, patience=3, keep=2, report="run.html")`: steps the trainer, evaluates, keeps
    the newest checkpoints and the best, stops where nothing improves, and writes the result. The header lists the options under
    tsr_run_new; samples and sample_messages are a str or a list of them. The trainer must not be closed before.

        with tessera.Run(trainer, out="tuned.tsr", report="run.html") as run:
            for event in run:
                if event.kind == "step":
                    print(event.step, event.loss)

    The last event is "end". Ctrl-C in a call, or in such a with statement, finishes the step in progress, saves a checkpoint and
    ends the run; then KeyboardInterrupt comes out, and option resume goes on."""

    _free = raw.tsr_run_free
    _exclusive = True

    def __init__(self, trainer: Trainer, /, **options: Any):
        self._trainer = trainer
        self._has_ended = False
        with use(trainer, Trainer, "trainer") as t, Options(_with_lists(options)) as o:
            self._pointer = interruptible(lambda: self._made(raw.tsr_run_new(t, o)), trainer.cancel)

    def __iter__(self) -> Iterator[RunEvent]:
        return self

    def __next__(self) -> RunEvent:
        """The next event. After an error the next call tries again what failed."""
        if self._has_ended:
            raise StopIteration
        kind, step, loss, details = result(self._stoppable(raw.tsr_run_next))
        self._has_ended = kind == raw.TSR_RUN_END
        return RunEvent(_KIND.get(kind, str(kind)), step, loss, json.loads(details))

    def finish(self) -> dict[str, Any]:
        """Goes on to the end; the report."""
        check(self._stoppable(raw.tsr_run_finish))
        self._has_ended = True
        return self.report()

    def _stoppable(self, call: Callable[[int], Result]) -> Result:
        """A call that Ctrl-C stops, together with the run."""
        with self._trainer._pointer, self._pointer as c:
            try:
                return interruptible(lambda: call(c), self.stop)
            except BaseException:
                self._end_stopped(c)
                raise

    def _end_stopped(self, c: int) -> None:
        self.stop()
        with contextlib.suppress(TesseraError):
            check(interruptible(lambda: raw.tsr_run_finish(c), self.stop))
        self._has_ended = True

    def stop(self) -> None:
        """Any thread: after the step in progress the run saves a checkpoint and ends, without a result."""
        with self._pointer.shared() as c:
            raw.tsr_run_stop(c)

    def evaluate(self) -> dict[str, Any]:
        """An evaluation now, which counts as that of this step; where there was one, its numbers."""
        with self._trainer._pointer, self._pointer as c:
            return json.loads(text(interruptible(lambda: raw.tsr_run_evaluate(c), self._trainer.cancel)))

    def save(self) -> None:
        """A checkpoint now, whole when this returns."""
        with self._trainer._pointer, self._pointer as c:
            check(interruptible(lambda: raw.tsr_run_save(c), lambda: None))

    def load_best(self) -> None:
        """At the end: loads the values of the best step into the trainer, from its checkpoint; NotFoundError where there is
        none."""
        with self._trainer._pointer, self._pointer as c:
            check(interruptible(lambda: raw.tsr_run_load_best(c), self._trainer.cancel))

    def report(self) -> dict[str, Any]:
        """Losses, evaluations, the best step, speed, plan, memory, checkpoint and result."""
        with self._trainer._pointer, self._pointer as c:
            return json.loads(text(raw.tsr_run_report(c)))

    def __exit__(self, kind: type[BaseException] | None = None, *_: Any) -> None:
        try:
            if kind is not None and issubclass(kind, (KeyboardInterrupt, SystemExit)) and not self._has_ended and not self.closed:
                with self._trainer._pointer, self._pointer as c:
                    self._end_stopped(c)
        finally:
            self.close()


def _with_lists(options: dict[str, Any]) -> dict[str, Any]:
    """A sample that begins with [ is no list."""
    return {key: [value] if key in ("samples", "sample_messages") and isinstance(value, str) else value
            for key, value in options.items()}


def check_run(model: Model | None = None, dataset: Dataset | None = None, /, **options: Any) -> None:
    """Raises what Run with these options would, before long work: of the options alone, and against a model and a dataset where
    they are given."""
    with (use_optional(model, Model, "model") as m, use_optional(dataset, Dataset, "dataset") as d,
          Options(_with_lists(options)) as o):
        check(raw.tsr_run_check(o, m, d))


def resumed_folder(name: Any) -> str:
    """The folder of the checkpoint that option resume means by a name: that folder, or the one next to a model or adapters."""
    path = arguments.path("name", name)
    return arguments.short_text(lambda found: raw.tsr_run_resumed_folder(path, found))
