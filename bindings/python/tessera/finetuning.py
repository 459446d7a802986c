"""Fine-tuning in one call."""
from __future__ import annotations

import contextlib
import json
import os
from typing import Any, Callable

from .dataset import Dataset
from .errors import ExistsError, FailedPreconditionError, InvalidArgumentError
from .files import check_path, check_run_paths
from .model import Model
from .plan import plan_methods
from .runtime import Runtime
from .trainer import Step, Trainer

_DATASET_OPTIONS = ("seq", "eval_fraction", "shuffle", "special", "kind", "files", "template", "mask", "max_length", "truncation",
                    "untrained", "skip_bad", "append_end", "packing", "eval_file", "cache", "now")


def finetune(model: Model | str | os.PathLike[str], data: Any, *, out: Any = None, steps: int = 100,
             lora: int | dict[str, Any] | None = None, method: str | None = None, progress: Callable[[Step], Any] | None = None,
             runtime: Runtime | None = None, seed: int | None = None, overwrite: bool = False, **options: Any) -> Model:
    """Trains a model, or that of a path, and returns it; a Model that was given changes. `out`: where it is saved too (.gguf: as
    GGUF); what is there is refused unless overwrite is True.

        tuned = tessera.finetune("small.tsr", "notes.txt", out="tuned.tsr", steps=200, devices="cpu:4",
                                 progress=lambda step: print(step.step, step.loss))

    data: the path of a text or of rows (JSON lines or an array: conversations, prompts with completions; the content decides), rows as dicts, a Dataset, or token
    ids. lora: rank, or options of Model.add_adapters; then the result is
    another model. method: "auto", the richest of full training, adapters, and adapters over fewer bits that fits
    memory_limit, or "full", "lora", "qlora:TYPE" (plan_methods); lora then says which adapters. progress: receives every step; an exception from it ends the work and propagates. Options: seq (default
    128, or the context length where that is shorter), eval_fraction, shuffle, special of the dataset, and of rows kind, mask,
    packing and others (docs/guides/training-data.md; template: the model's unless given); the others are those of Trainer. seed is that of both."""
    if out is not None:
        check_path(out)
        if not overwrite:
            try:
                check_run_paths(out)
            except ExistsError as error:
                raise ExistsError(f"{error} (overwrite=True)") from error
    of_data = {key: options.pop(key) for key in _DATASET_OPTIONS if key in options}
    if not isinstance(model, Model):
        model = Model.load(model, runtime=runtime)
    adapters = {} if lora is None else lora if isinstance(lora, dict) else {"rank": lora}
    if lora is not None and method is None:
        model = model.add_adapters(**adapters)
    with _dataset(model, data, of_data, seed) as dataset:
        if method is not None:
            chosen = plan_methods(model, dataset, adapters=adapters, runtime=runtime, steps=steps, seed=seed, method=method,
                                  **options)["method"]
            is_full = chosen == "full" and method == "auto"
            model = model.for_method(chosen, **({} if is_full else adapters))
        with Trainer(model, dataset, runtime=runtime, steps=steps, seed=seed, **options) as trainer:
            for step in trainer.steps(steps):
                if progress is not None:
                    progress(step)
            trainer.store(model)
    if out is not None:
        model.save(out)
    return model


def _default_seq(model: Model) -> int:
    """128 tokens, or the model's context length where that is shorter."""
    return min([128, *(each["capacity"] for each in model.info()["symbols"] if each["name"] == "T" and each["capacity"] > 0)])


def _dataset(model: Model, data: Any, options: dict[str, Any], seed: int | None) -> Any:
    if isinstance(data, Dataset):
        if options:
            raise InvalidArgumentError(f"data: found a Dataset and {', '.join(options)}, which it has already; wanted one")
        return contextlib.nullcontext(data)
    options = {"seq": _default_seq(model), **options, "seed": seed}
    is_path = isinstance(data, (str, os.PathLike))
    is_dicts = isinstance(data, (list, tuple)) and len(data) > 0 and isinstance(data[0], dict)
    if not is_path and not is_dicts:
        return Dataset.from_tokens(data, **options)
    tokenizer = model.tokenizer
    if tokenizer is None:
        raise FailedPreconditionError("the model has no tokenizer; wanted one, or data as token ids")
    if "template" not in options:  # of a text it says nothing
        options["template"] = model.metadata("chat_template") or ""
    if is_dicts:
        return Dataset.from_text("\n".join(map(json.dumps, data)), tokenizer, **{"kind": "auto", **options})
    return Dataset(data, tokenizer, **options)
