"""Embedder: vectors of texts, and the classes that a classifier finds in them."""
from __future__ import annotations

import array
import json
from typing import TYPE_CHECKING, Any, Sequence

from . import arguments, raw
from .arguments import Options
from .errors import check, result, text
from .handle import Handle, use
from .runtime import Runtime, chosen_runtime
from .work import Progress, interruptible

if TYPE_CHECKING:
    from .model import Model


class Embedder(Handle):
    """Plan and weights are made once, for any number of texts. One thread at a time; the header lists the options under
    tsr_embedder_new. Rows are a buffer of f32 [rows, width]: numpy.asarray(rows), rows.tolist()."""

    _free = raw.tsr_embedder_free
    _exclusive = True
    _pairs = False

    def __init__(self, model: Model, *, runtime: Runtime | None = None, **options: Any):
        from .model import Model
        runtime = chosen_runtime(runtime)
        self._pairs = bool(options.get("pairs"))
        with use(model, Model, "model") as m, runtime._pointer as r, Options(options) as o:
            self._pointer = interruptible(lambda: self._made(raw.tsr_embedder_new(r, m, o)), runtime.cancel)

    @property
    def width(self) -> int:
        """Numbers of a row."""
        with self._pointer as c:
            return result(raw.tsr_embedder_width(c))

    def embed(self, texts: Sequence[str | bytes], progress: Progress | None = None) -> memoryview[float]:
        """A row for each text, or with option pairs for each two. `progress` receives the completed fraction; an exception
        from it ends the work."""
        data, lengths = arguments.joined_texts("texts", texts)
        with self._pointer as c:
            if progress is None:
                width = result(raw.tsr_embedder_width(c))
                rows = array.array("f", bytes(4 * width * (len(lengths) // 2 if self._pairs else len(lengths))))
                result(interruptible(lambda: raw.tsr_embedder_embed(c, data, lengths, rows), self.cancel))
                return shaped(rows, width)
            check(raw.tsr_embedder_start(c, data, lengths))
            return self._compute(c, progress)

    def embed_tokens(self, texts: Sequence[Any], progress: Progress | None = None) -> memoryview[float]:
        """The same of token ids, which are read as they are."""
        ids, lengths = arguments.joined_ids("texts", texts)
        with self._pointer as c:
            check(raw.tsr_embedder_start_ids(c, ids, lengths))
            return self._compute(c, progress)

    def _compute(self, c: int, progress: Progress | None) -> memoryview[float]:
        done = 0.0
        while done < 1:
            done = result(interruptible(lambda: raw.tsr_embedder_step(c), self.cancel))
            if progress is not None:
                progress(done)
        return shaped(arguments.counted("f", lambda rows: raw.tsr_embedder_rows(c, rows)),
                       result(raw.tsr_embedder_width(c)))

    @property
    def labels(self) -> list[str]:
        """Names of a classifier's classes, in the order of a row; none for vectors."""
        return self.report().get("labels") or []

    def report(self) -> dict[str, Any]:
        """Texts, tokens, speed, plan, memory of the texts started last."""
        with self._pointer as c:
            return json.loads(text(raw.tsr_embedder_report(c)))

    def cancel(self) -> None:
        """Any thread: the embed in progress raises CancelledError."""
        with self._pointer.shared() as c:
            raw.tsr_embedder_cancel(c)


def shaped(rows: Any, width: int) -> memoryview[float]:
    view: Any = memoryview(rows)
    return view.cast("B").cast("f", (len(rows) // width, width)) if rows else view
