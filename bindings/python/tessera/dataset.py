"""Dataset: token ids cut into samples."""
from __future__ import annotations

import array
import json
from typing import Any

from . import arguments, raw
from .arguments import Options
from .errors import text
from .handle import Handle, use
from .tokenizer import Tokenizer


class Dataset(Handle):
    """Samples of seq + 1 tokens, inputs and labels shifted by one. Immutable; any thread.

    `Dataset(path, tokenizer)` reads a text file. Options: seq, eval_fraction, shuffle, seed, and of texts special."""

    _free = raw.tsr_dataset_free

    def __init__(self, path: Any, tokenizer: Tokenizer, **options: Any):
        file = arguments.path("path", path)
        with use(tokenizer, Tokenizer, "tokenizer") as t, Options(options) as o:
            self._pointer = self._made(raw.tsr_dataset_new_file(file, t, o))

    @classmethod
    def from_text(cls, source: str | bytes, tokenizer: Tokenizer, **options: Any) -> Dataset:
        """Of a text in memory."""
        with use(tokenizer, Tokenizer, "tokenizer") as t, Options(options) as o:
            return cls._own(raw.tsr_dataset_new_text(arguments.text("source", source), t, o))

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
