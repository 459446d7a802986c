"""AdapterTrainer: trains many low-rank adapters in the same batches over one frozen model."""
from __future__ import annotations

import array
import json
import math
from typing import TYPE_CHECKING, Any, Iterator, NamedTuple

from . import arguments, raw
from .arguments import Options
from .errors import TesseraError, check, error_of, result, text
from .handle import Handle, use
from .runtime import Runtime, chosen_runtime
from .trainer import Batch
from .work import interruptible

if TYPE_CHECKING:
    from .model import Model


class Pass(NamedTuple):
    """The result of a pass."""

    number: int
    adapter: int
    kind: str  # forward, forward_backward, backward or update
    loss: float | None  # of its rows; of an update, of all rows since the last one; nan where it is not finite; None of forward
    step: int | None  # of an update, as grad_norm and lr
    grad_norm: float | None
    lr: float | None
    logprobs: array.array[float]  # of the labels of its batch
    error: TesseraError | None  # why it failed, which leaves other adapters alone


def _number(done: dict[str, Any], name: str) -> float | None:
    """A number of a result, in which one that is not finite is null."""
    value = done.get(name)
    return math.nan if value is None and name in done else value


class AdapterTrainer(Handle):
    """`AdapterTrainer(model, seq=128, batch=16, adapters=8)`. The header says the rest under "adapters side by side".

        adapter = trainer.add(rank=8)
        trainer.forward_backward(adapter, batch)
        trainer.update(adapter, lr=1e-4)
        for done in trainer.finished(): print(done.adapter, done.loss)
        tuned = trainer.model(adapter)
    """

    _free = raw.tsr_adapter_trainer_free
    _exclusive = True

    def __init__(self, model: Model, *, runtime: Runtime | None = None, **options: Any):
        from .model import Model
        runtime = chosen_runtime(runtime)
        with use(model, Model, "model") as m, runtime._pointer as r, Options(options) as o:
            self._pointer = interruptible(lambda: self._made(raw.tsr_adapter_trainer_new(r, m, o)), runtime.cancel)

    def add(self, **options: Any) -> int:
        """Adds an adapter and gives its number. Options: those of Model.add_adapters, and seed."""
        with self._pointer as c, Options(options) as o:
            return result(raw.tsr_adapter_trainer_add(c, o))

    def drop(self, adapter: int) -> None:
        """Ends an adapter, with its passes that wait."""
        with self._pointer as c:
            check(raw.tsr_adapter_trainer_drop(c, adapter))

    def forward(self, adapter: int, batch: Batch) -> int:
        """Queues a pass that gives the log probabilities of a batch's labels, and gives the pass's number."""
        with self._pointer as c:
            return result(raw.tsr_raw_adapter_trainer_forward(c, adapter, *batch._rows))

    def forward_backward(self, adapter: int, batch: Batch, loss: str = "cross_entropy", **options: Any) -> int:
        """Queues a pass that adds the gradients of a loss, as Trainer.forward_backward does."""
        name = arguments.text("loss", loss, nul=False)
        with self._pointer as c, Options(options) as o:
            return result(raw.tsr_raw_adapter_trainer_forward_backward(c, adapter, *batch._rows, *batch._values, name, o))

    def backward(self, adapter: int, batch: Batch, gradients: Any) -> int:
        """Queues a pass that adds the gradients of a loss of your own, as Trainer.backward does."""
        items = arguments.items("gradients", "f", "float32", gradients)
        with self._pointer as c:
            return result(raw.tsr_raw_adapter_trainer_backward(c, adapter, *batch._rows, items))

    def update(self, adapter: int, **options: Any) -> int:
        """Queues an adapter's optimizer step. Options: those of Trainer.optimizer_step."""
        with self._pointer as c, Options(options) as o:
            return result(raw.tsr_adapter_trainer_update(c, adapter, o))

    def cancel_pass(self, number: int) -> None:
        """Drops a pass that is not finished."""
        with self._pointer as c:
            check(raw.tsr_adapter_trainer_cancel_pass(c, number))

    def next(self) -> Pass | None:
        """Computes until a pass is finished; None: none waits. Ctrl-C ends the run in progress, and loses all values."""
        with self._pointer as c:
            found = text(interruptible(lambda: raw.tsr_adapter_trainer_next(c), self.cancel))
            if not found:
                return None
            done = json.loads(found)
            items = arguments.counted("f", lambda items: raw.tsr_adapter_trainer_logprobs(c, items))
        error = done.get("error")
        return Pass(done["pass"], done["adapter"], done["kind"], _number(done, "loss"), done.get("step"),
                    _number(done, "grad_norm"), _number(done, "lr"), items, error and error_of(error["code"], error["message"]))

    def finished(self) -> Iterator[Pass]:
        """The results of all passes that wait."""
        while (done := self.next()) is not None:
            yield done

    def save(self, adapter: int, folder: Any) -> None:
        """Writes the checkpoint of one adapter, which a Trainer of the model with it alone reads, too."""
        name = arguments.path("folder", folder)
        with self._pointer as c:
            check(raw.tsr_adapter_trainer_save(c, adapter, name))

    def load(self, folder: Any, *, optimizer: bool = True) -> int:
        """Adds the adapter of a checkpoint, with its optimizer state and step; without them its values alone, from step 0."""
        name = arguments.path("folder", folder)
        with self._pointer as c, Options({"optimizer": optimizer}) as o:
            return result(raw.tsr_adapter_trainer_load(c, name, o))

    def model(self, adapter: int) -> Model:
        """The model with an adapter's present values."""
        from .model import Model
        with self._pointer as c:
            return Model._own(raw.tsr_adapter_trainer_model(c, adapter))

    def report(self) -> dict[str, Any]:
        """Slots, adapters, counts of tokens and memory."""
        with self._pointer as c:
            return json.loads(text(raw.tsr_adapter_trainer_report(c)))

    def cancel(self) -> None:
        """Any thread: ends the run in progress."""
        with self._pointer.shared() as c:
            raw.tsr_adapter_trainer_cancel(c)
