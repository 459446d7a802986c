"""Scorer: how likely given tokens are to a model."""
from __future__ import annotations

import array
import json
from typing import TYPE_CHECKING, Any, NamedTuple, Sequence

from . import arguments, raw
from .arguments import Options
from .errors import check, result, text
from .handle import Handle, use
from .runtime import Runtime, chosen_runtime
from .work import Progress, interruptible

if TYPE_CHECKING:
    from .model import Model


class Scores(NamedTuple):
    """Those of one text, a number for each token."""

    logprobs: array.array[float]  # f32, natural logarithms; NaN for the first where nothing is before it
    greedy: array.array[int]  # 1 where no token was likelier, 0 elsewhere


def _split(lengths: array.array[int], logprobs: array.array[float], greedy: array.array[int]) -> list[Scores]:
    scores, begin = [], 0
    for length in lengths:
        scores.append(Scores(logprobs[begin:begin + length], greedy[begin:begin + length]))
        begin += length
    return scores


class Scorer(Handle):
    """Plan and weights are made once, for any number of texts. One thread at a time; the header lists the options under
    tsr_scorer_new."""

    _free = raw.tsr_scorer_free
    _exclusive = True

    def __init__(self, model: Model, *, runtime: Runtime | None = None, **options: Any):
        from .model import Model
        runtime = chosen_runtime(runtime)
        with use(model, Model, "model") as m, runtime._pointer as r, Options(options) as o:
            self._pointer = interruptible(lambda: self._made(raw.tsr_scorer_new(r, m, o)), runtime.cancel)

    def score(self, texts: Sequence[Any], progress: Progress | None = None) -> list[Scores]:
        """Scores texts of token ids. `progress` receives the completed fraction; an exception from it ends the work."""
        ids, lengths = arguments.joined_ids("texts", texts)
        logprobs, greedy = array.array("f", bytes(4 * len(ids))), array.array("B", bytes(len(ids)))
        with self._pointer as c:
            if progress is None:
                check(interruptible(lambda: raw.tsr_scorer_score(c, ids, lengths, logprobs, greedy), self.cancel))
            else:
                check(raw.tsr_scorer_start(c, ids, lengths))
                done = 0.0
                while done < 1:
                    done = result(interruptible(lambda: raw.tsr_scorer_step(c), self.cancel))
                    progress(done)
                check(raw.tsr_scorer_logprobs(c, logprobs)[0])
                check(raw.tsr_scorer_greedy(c, greedy)[0])
        return _split(lengths, logprobs, greedy)

    def report(self) -> dict[str, Any]:
        """Tokens, windows, speed, plan, memory of the texts scored last."""
        with self._pointer as c:
            return json.loads(text(raw.tsr_scorer_report(c)))

    def cancel(self) -> None:
        """Any thread: the score in progress raises CancelledError."""
        with self._pointer.shared() as c:
            raw.tsr_scorer_cancel(c)


def score(model: Model, texts: Sequence[Any], *, runtime: Runtime | None = None, **options: Any) -> list[Scores]:
    """A Scorer for texts that are all there at once."""
    from .model import Model
    runtime = chosen_runtime(runtime)
    ids, lengths = arguments.joined_ids("texts", texts)
    logprobs, greedy = array.array("f", bytes(4 * len(ids))), array.array("B", bytes(len(ids)))
    with use(model, Model, "model") as m, runtime._pointer as r, Options(options) as o:
        check(interruptible(lambda: raw.tsr_model_score(r, m, o, ids, lengths, logprobs, greedy), runtime.cancel))
    return _split(lengths, logprobs, greedy)
