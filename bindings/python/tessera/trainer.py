"""Trainer: trains a model on all devices given."""
from __future__ import annotations

import array
import json
from typing import TYPE_CHECKING, Any, Iterator, NamedTuple

from . import arguments, files, raw
from .arguments import Options
from .dataset import Dataset
from .errors import InvalidArgumentError, check, result, text
from .handle import Handle, use, use_optional
from .plan import Plan
from .runtime import Runtime, chosen_runtime
from .tensor import Tensor, as_tensor
from .work import Progress, Work, interruptible, run_work

if TYPE_CHECKING:
    from .model import Model


class Step(NamedTuple):
    """The outcome of one optimizer step."""

    step: int  # 1 for the first
    loss: float  # of the batch, before the update
    grad_norm: float  # global, before clipping
    lr: float
    seconds: float
    chosen_reward: float  # this and what follows: of a preference loss (header: tsr_step), else 0
    rejected_reward: float
    reward_margin: float
    reward_accuracy: float


class Loss(NamedTuple):
    """What an accumulation gives."""

    loss: float
    logprobs: array.array[float]  # of the labels, one row after another


class Batch:
    """Rows of `seq` tokens for a part of a step: buffers of int32 (weights, sampler_logprobs, advantages: float32), or
    numbers, one row after another. labels: the token that is to follow, or -1. The header says the rest under tsr_batch."""

    def __init__(self, tokens: Any, labels: Any, seq: int, *, positions: Any = None, segments: Any = None,
                 weights: Any = None, sampler_logprobs: Any = None, advantages: Any = None):
        def given(name: str, values: Any, code: str = "i") -> Any:
            if values is None:
                return None
            found = arguments.items(name, code, "float32" if code == "f" else "int32", values)
            if memoryview(found).nbytes // 4 != count:
                raise InvalidArgumentError(f"{name}: found {memoryview(found).nbytes // 4}, wanted {count}, as many as tokens")
            return found

        ids = arguments.ids("tokens", tokens)
        count = memoryview(ids).nbytes // 4
        if seq < 1 or count == 0 or count % seq:
            raise InvalidArgumentError(f"{count} tokens are no rows of {seq}")
        self.count = count
        self._rows = (count // seq, seq, ids, given("labels", labels), given("positions", positions),
                      given("segments", segments))
        self._values = (given("weights", weights, "f"), given("sampler_logprobs", sampler_logprobs, "f"),
                        given("advantages", advantages, "f"))


class Trainer(Handle):
    """`Trainer(model, dataset, devices="cpu:4", batch=8, steps=100, lr=1e-4)`. One thread at a time; the header lists the
    options under tsr_trainer_new. Without a dataset the graph has a scalar output "loss" of its own, and inputs that are
    fed. The model stays as it is until `store`. `progress` receives the completed fraction of planning and of the
    log probabilities of a preference loss's reference (loss="dpo", ...); an exception from it ends them."""

    _free = raw.tsr_trainer_free
    _exclusive = True

    def __init__(self, model: Model, dataset: Dataset | None = None, *, progress: Progress | None = None,
                 runtime: Runtime | None = None, **options: Any):
        from .model import Model
        runtime = chosen_runtime(runtime)
        with (use(model, Model, "model") as m, use_optional(dataset, Dataset, "dataset") as d, runtime._pointer as r,
              Options(options) as o):
            if progress is None:
                self._pointer = interruptible(lambda: self._made(raw.tsr_trainer_new(r, m, d, o)), runtime.cancel)
            else:
                self._pointer = run_work(lambda: raw.tsr_trainer_begin(r, m, d, o),
                                         lambda c: self._made(raw.tsr_trainer_finish(c)), progress)

    def feed(self, name: str, value: Any) -> None:
        """An input of an own graph, of a Tensor or a buffer; copied. It keeps its value until it is fed again."""
        with self._pointer as c, as_tensor("value", value)._pointer as t:
            check(raw.tsr_trainer_feed(c, arguments.text("name", name, nul=False), t))

    def step(self) -> Step:
        """One optimizer step. After a cancelled one the values on the devices are lost: resume, or close."""
        with self._pointer as c:
            return Step(*result(interruptible(lambda: raw.tsr_trainer_step(c), self.cancel)))

    def steps(self, count: int) -> Iterator[Step]:
        """`for step in trainer.steps(100): print(step.loss)`."""
        for _ in range(count):
            yield self.step()

    def set_lr(self, lr: float) -> None:
        """The rate of the next step and of those after it; below 0 the schedule's again."""
        with self._pointer as c:
            check(raw.tsr_trainer_set_lr(c, lr))

    def evaluate(self) -> float:
        """Mean loss over the dataset's evaluation part."""
        with self._pointer as c:
            return result(interruptible(lambda: raw.tsr_trainer_evaluate(c), self.cancel))

    def evaluate_all(self) -> dict[str, Any]:
        """An evaluation with all its numbers: loss, perplexity, accuracy (the share of labels that are predicted; None
        for own graphs), labels, correct, seconds."""
        with self._pointer as c:
            return json.loads(text(interruptible(lambda: raw.tsr_trainer_evaluate_all(c), self.cancel)))

    def forward(self, batch: Batch) -> array.array[float]:
        """Log probabilities of a batch's labels, 0 for negative ones. Parts of steps need the option losses."""
        items = array.array("f", bytes(4 * batch.count))
        with self._pointer as c:
            result(interruptible(lambda: raw.tsr_raw_trainer_forward(c, *batch._rows, items), self.cancel))
        return items

    def forward_backward(self, batch: Batch, loss: str = "cross_entropy", **options: Any) -> Loss:
        """Adds the gradients of a loss: cross_entropy, importance_sampling, ppo, cispo, dro or gspo; options scale, eps_low,
        eps_high, beta."""
        items = array.array("f", bytes(4 * batch.count))
        name = arguments.text("loss", loss, nul=False)
        with self._pointer as c, Options(options) as o:
            value, _ = result(interruptible(lambda: raw.tsr_raw_trainer_forward_backward(
                c, *batch._rows, *batch._values, name, o, items), self.cancel))
        return Loss(value, items)

    def backward(self, batch: Batch, gradients: Any) -> None:
        """Adds the gradients of a loss of your own, given its derivatives by the log probabilities of the labels."""
        items = arguments.items("gradients", "f", "float32", gradients)
        with self._pointer as c:
            check(interruptible(lambda: raw.tsr_raw_trainer_backward(c, *batch._rows, items), self.cancel))

    def optimizer_step(self, **options: Any) -> Step:
        """The update from the gradients added up since the last one. Options, of this step alone: lr, clip_norm, and the
        settings of the optimizer (beta1, beta2, eps, weight_decay, momentum)."""
        with self._pointer as c, Options(options) as o:
            return Step(*result(interruptible(lambda: raw.tsr_trainer_optimizer_step(c, o), self.cancel)))

    def save(self, folder: Any, *, progress: Progress | None = None) -> None:
        """Replaces the checkpoint in a folder, at once or not at all. `progress` may not use the trainer."""
        name = arguments.path("folder", folder)
        with self._pointer as c:
            if progress is None:
                check(interruptible(lambda: raw.tsr_trainer_save(c, name), self.cancel))
            else:
                run_work(lambda: raw.tsr_checkpoint_begin(c, name), lambda c: check(raw.tsr_checkpoint_finish(c)), progress)

    def start_save(self, folder: Any, **notes: Any) -> Saving:
        """Copies a checkpoint's contents to host memory, and begins to write them on a thread of its own: the trainer is free when
        this returns. `checkpoint_info` gives the notes, texts and numbers, back as texts. `finish` puts it in its place."""
        name = arguments.path("folder", folder)
        with self._pointer as c, Options(notes) as o:
            return Saving._own(interruptible(lambda: raw.tsr_checkpoint_begin_snapshot(c, name, o), self.cancel))

    def resume(self, folder: Any) -> None:
        """Goes on from a checkpoint of the same model, bit for bit on equal devices."""
        name = arguments.path("folder", folder)
        with self._pointer as c:
            check(interruptible(lambda: raw.tsr_trainer_resume(c, name), self.cancel))

    def save_state(self, folder: Any, *, optimizer: bool = True) -> None:
        """`save`; without the optimizer a checkpoint of parameters alone."""
        name = arguments.path("folder", folder)
        with self._pointer as c, Options({"optimizer": optimizer}) as o:
            check(interruptible(lambda: raw.tsr_trainer_save_state(c, name, o), self.cancel))

    def load_state(self, folder: Any, *, optimizer: bool = True) -> None:
        """`resume`; without the optimizer the parameters alone, of any checkpoint, with which the training begins."""
        name = arguments.path("folder", folder)
        with self._pointer as c, Options({"optimizer": optimizer}) as o:
            check(interruptible(lambda: raw.tsr_trainer_load_state(c, name, o), self.cancel))

    def store(self, model: Model) -> None:
        """Present values of all parameters into a model, which may be the one trained."""
        from .model import Model
        with self._pointer as c, use(model, Model, "model") as m:
            model._forget_generators()
            check(raw.tsr_trainer_store(c, m))

    def save_model(self, model: Model, path: Any, *, progress: Progress | None = None, **options: Any) -> None:
        """Writes the file that store and then Model.save would write; the model stays as it is. `progress` may not use the
        trainer. Options: those of `convert`."""
        from .model import Model
        file = arguments.path("path", path)
        with self._pointer as c, use(model, Model, "model") as m:
            files.save_model(lambda o: raw.tsr_trainer_save_model(c, m, file, o),
                             lambda o: raw.tsr_conversion_begin_for_trainer(c, m, file, o), options, progress)

    def read(self, name: str) -> Tensor:
        """A parameter, or optimizer state ("<parameter>.m")."""
        with self._pointer as c:
            return Tensor._own(raw.tsr_trainer_read(c, arguments.text("name", name, nul=False)))

    def write(self, name: str, value: Any) -> None:
        """Likewise, of a Tensor or a buffer; copied."""
        with self._pointer as c, as_tensor("value", value)._pointer as t:
            check(raw.tsr_trainer_write(c, arguments.text("name", name, nul=False), t))

    def plan(self) -> Plan:
        """The plan that it follows."""
        with self._pointer as c:
            return Plan._own(raw.tsr_trainer_plan(c))

    def report(self) -> dict[str, Any]:
        """Plan, memory, communication."""
        with self._pointer as c:
            return json.loads(text(raw.tsr_trainer_report(c)))

    def trace(self) -> list[dict[str, Any]]:
        """What ran since the last call, in Chrome's trace format. Needs the option trace."""
        with self._pointer as c:
            return json.loads(text(raw.tsr_trainer_take_trace(c)))

    def cancel(self) -> None:
        """Any thread: the step, evaluation, save or resume in progress raises CancelledError."""
        with self._pointer.shared() as c:
            raw.tsr_trainer_cancel(c)


class Saving(Work):
    """A checkpoint that is written while its trainer goes on. Closed before `finish`, it gives up what was written, and the
    folder is as it was."""

    def finish(self, *, progress: Progress | None = None) -> None:
        """Waits until all is written, on any thread, and puts the checkpoint in its place."""
        self.run(progress)
        self.take(lambda c: check(raw.tsr_checkpoint_finish(c)))


def check_folder(folder: Any) -> None:
    """Raises what Trainer.save of this folder would, before the first step."""
    check(raw.tsr_trainer_check_folder(arguments.path("folder", folder)))


def checkpoint_info(folder: Any) -> dict[str, Any]:
    """What a checkpoint holds, and the adapters of the model that it is of."""
    return json.loads(text(raw.tsr_checkpoint_info(arguments.path("folder", folder))))
