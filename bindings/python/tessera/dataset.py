"""Dataset: token ids cut into samples."""
from __future__ import annotations

import array
import json
from typing import Any, Callable

from . import arguments, raw
from .arguments import Options
from .errors import text
from .handle import Handle, Pointer, use, use_optional
from .runtime import Runtime
from .tokenizer import Tokenizer
from .work import Progress, run_steps, signals_arrive


class Dataset(Handle):
    """Samples of seq + 1 tokens, inputs and labels shifted by one. Immutable; any thread.

    `Dataset(path, tokenizer)` reads a text file. `progress` is told the share that is done; what it raises ends the reading,
    as does Ctrl-C, and cancel of a runtime that is given. Options: seq, eval_fraction, shuffle, seed, and of texts special."""

    _free = raw.tsr_dataset_free

    def __init__(self, path: Any, tokenizer: Tokenizer, *, progress: Progress | None = None, runtime: Runtime | None = None,
                 **options: Any):
        file = arguments.path("path", path)
        with use(tokenizer, Tokenizer, "tokenizer") as t, Options(options) as o:
            self._pointer = self._read(lambda: raw.tsr_dataset_new_file(file, t, o),
                                       lambda r: raw.tsr_reading_new_file(r, file, t, o), progress, runtime)

    @classmethod
    def from_text(cls, source: str | bytes, tokenizer: Tokenizer, *, progress: Progress | None = None,
                  runtime: Runtime | None = None, **options: Any) -> Dataset:
        """Of a text in memory."""
        data = arguments.text("source", source)
        self = cls.__new__(cls)
        with use(tokenizer, Tokenizer, "tokenizer") as t, Options(options) as o:
            self._pointer = cls._read(lambda: raw.tsr_dataset_new_text(data, t, o),
                                      lambda r: raw.tsr_reading_new_text(r, data, t, o), progress, runtime)
        return self

    @classmethod
    def _read(cls, read: Callable[[], tuple[Any, ...]], begin: Callable[[int], tuple[Any, ...]], progress: Progress | None,
              runtime: Runtime | None) -> Pointer:
        """read() does it in one call, which nothing can end; begin(runtime) is taken where somebody listens or may
        interrupt."""
        if progress is None and runtime is None and not signals_arrive():
            return cls._made(read())
        with use_optional(runtime, Runtime, "runtime") as r:
            return run_steps("reading", raw.tsr_reading_free, lambda: begin(r), raw.tsr_reading_step,
                             lambda c: cls._made(raw.tsr_reading_finish(c)), progress)

    @classmethod
    def from_tokens(cls, ids: Any, **options: Any) -> Dataset:
        """Of a buffer of int32, or ints."""
        with Options(options) as o:
            return cls._own(raw.tsr_dataset_new_tokens(arguments.ids("ids", ids), o))

    def info(self) -> dict[str, Any]:
        """Tokens, samples, and the loss of a model that knows only how frequent each token is."""
        with self._pointer as c:
            return json.loads(text(raw.tsr_dataset_info(c)))

    def batch(self, step: int, batch: int) -> memoryview[int]:
        """The training batch of global step `step`, from 0: int32 [batch, seq + 1]."""
        with self._pointer as c:
            ids: array.array[int] = arguments.counted("i", lambda ids: raw.tsr_dataset_batch(c, step, batch, ids))
        return memoryview(ids).cast("B").cast("i", (batch, len(ids) // batch)) if ids else memoryview(ids)
