"""Dataset: what a trainer reads, as rows of tokens."""
from __future__ import annotations

import array
import json
from typing import Any, Callable

from . import arguments, raw
from .arguments import Options
from .errors import InvalidArgumentError, result, text
from .handle import Handle, Pointer, use, use_optional
from .runtime import Runtime
from .tokenizer import Tokenizer
from .work import Progress, run_work, signals_arrive


class Dataset(Handle):
    """A text cut into samples, rows of training data (JSON lines), or rows of token ids. Immutable; any thread.

    `Dataset(path, tokenizer)` reads a text file, or rows of JSON (the content decides), whose options are those of
    docs/guides/training-data.md: kind, template, mask, packing and others. `progress` receives the completed fraction; an exception from it ends the reading,
    as does Ctrl-C, and cancel of a given runtime. Options: seq, eval_fraction, shuffle, seed, and of texts special."""

    _free = raw.tsr_dataset_free

    def __init__(self, path: Any, tokenizer: Tokenizer, *, progress: Progress | None = None, runtime: Runtime | None = None,
                 **options: Any):
        file = arguments.path("path", path)
        with use(tokenizer, Tokenizer, "tokenizer") as t, Options(options) as o:
            self._pointer = self._read(lambda: raw.tsr_dataset_new_file(file, t, o),
                                       lambda r: raw.tsr_dataset_begin_file(r, file, t, o), progress, runtime)

    @classmethod
    def from_text(cls, source: str | bytes, tokenizer: Tokenizer, *, progress: Progress | None = None,
                  runtime: Runtime | None = None, **options: Any) -> Dataset:
        """Of a text in memory."""
        data = arguments.text("source", source)
        self = cls.__new__(cls)
        with use(tokenizer, Tokenizer, "tokenizer") as t, Options(options) as o:
            self._pointer = cls._read(lambda: raw.tsr_dataset_new_text(data, t, o),
                                      lambda r: raw.tsr_dataset_begin_text(r, data, t, o), progress, runtime)
        return self

    @classmethod
    def _read(cls, read: Callable[[], tuple[Any, ...]], begin: Callable[[int], tuple[Any, ...]], progress: Progress | None,
              runtime: Runtime | None) -> Pointer:
        """read() does it in one call, which nothing can end; begin(runtime) is taken where somebody listens or may
        interrupt."""
        if progress is None and runtime is None and not signals_arrive():
            return cls._made(read())
        with use_optional(runtime, Runtime, "runtime") as r:
            return run_work(lambda: begin(r), lambda c: cls._made(raw.tsr_dataset_finish(c)), progress)

    @classmethod
    def from_tokens(cls, ids: Any, **options: Any) -> Dataset:
        """Of a buffer of int32, or ints."""
        with Options(options) as o:
            return cls._own(raw.tsr_dataset_new_tokens(arguments.ids("ids", ids), o))

    @classmethod
    def from_rows(cls, tokens: Any, seq: int, *, labels: Any = None, weights: Any = None, segments: Any = None,
                  positions: Any = None, **options: Any) -> Dataset:
        """Of rows of `seq` tokens: buffers of int32 (weights: float32), or numbers, one row after another.

        labels: the token that should follow, or -1; weights: factors on the losses of labels, 0 where a label does not
        count; segments: the number of the document that a token is of; positions: its place in it."""
        def given(name: str, values: Any, code: str = "i") -> Any:
            return None if values is None else arguments.items(name, code, "float32" if code == "f" else "int32", values)

        ids = arguments.ids("tokens", tokens)
        arrays = [given("labels", labels), given("weights", weights, "f"), given("segments", segments),
                  given("positions", positions)]
        count = memoryview(ids).nbytes // 4
        if seq < 1 or count == 0 or count % seq:
            raise InvalidArgumentError(f"{count} tokens are no rows of {seq}")
        for name, values in zip(("labels", "weights", "segments", "positions"), arrays):
            if values is not None and memoryview(values).nbytes // 4 != count:
                raise InvalidArgumentError(f"{name}: found {memoryview(values).nbytes // 4}, wanted {count}, as many as tokens")
        with Options(options) as o:
            return cls._own(raw.tsr_dataset_new_rows(count // seq, seq, ids, *arrays, o))

    def rows(self, step: int, batch: int) -> dict[str, memoryview[int]]:
        """What the trainer feeds at global step `step`, from 0: tokens, labels, positions and segments, int32 [batch, seq]."""
        seq = self.info()["seq"]
        if batch < 1:
            raise InvalidArgumentError(f"batch is {batch}, wanted 1 or more")
        arrays = {name: array.array("i", bytes(4 * batch * seq)) for name in ("tokens", "labels", "positions", "segments")}
        with self._pointer as c:
            result(raw.tsr_dataset_rows(c, step, batch, *arrays.values(), batch * seq))
        return {name: memoryview(values).cast("B").cast("i", (batch, seq)) for name, values in arrays.items()}

    def example(self, number: int) -> dict[str, Any]:
        """Example `number` of rows of training data, from 0: its ids, and which of them are trained."""
        with self._pointer as c:
            return json.loads(text(raw.tsr_dataset_example(c, number)))

    def info(self) -> dict[str, Any]:
        """Tokens, samples, and the loss of a model that knows only how frequent each token is."""
        with self._pointer as c:
            return json.loads(text(raw.tsr_dataset_info(c)))

    def batch(self, step: int, batch: int) -> memoryview[int]:
        """The training batch of global step `step`, from 0: int32 [batch, seq + 1]."""
        with self._pointer as c:
            ids: array.array[int] = arguments.counted("i", lambda ids: raw.tsr_dataset_batch(c, step, batch, ids))
        return memoryview(ids).cast("B").cast("i", (batch, len(ids) // batch)) if ids else memoryview(ids)
