"""Long work over files of models: load, convert, export, importance matrices. Each tells `progress` the share that is done;
what that raises, and Ctrl-C, end the work, come out and leave no file."""
from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Callable

from . import arguments, raw
from .arguments import Options
from .errors import check, text
from .handle import Pointer, use
from .runtime import Runtime, chosen_runtime
from .work import Progress, step_through

if TYPE_CHECKING:
    from .model import Model


_Call = Callable[[int], tuple[Any, ...]]


def _finished(noun: str, free: Callable[[int], None], begin: _Call, step: _Call,
              finish: Callable[[int], Any], runtime: Runtime | None, progress: Progress | None) -> Any:
    """Begins, steps and finishes long work; its handle is freed in any case."""
    runtime = chosen_runtime(runtime)
    with runtime._pointer as r:
        pointer = Pointer(noun, free, begin(r), exclusive=True)
        try:
            step_through(pointer, step, progress, runtime.cancel)
            with pointer as c:
                return finish(c)
        finally:
            pointer.close()


def load_steps(path: Any, finish: Callable[[int], Any], options: dict[str, Any], runtime: Runtime | None,
               progress: Progress | None) -> Any:
    """Loads a model's file in steps; finish(loading) makes the model."""
    file = arguments.path("path", path)
    with Options(options) as o:
        return _finished("loading", raw.tsr_loading_free, lambda r: raw.tsr_loading_new(r, file, o), raw.tsr_loading_step,
                         finish, runtime, progress)


def convert(source: Any, out: Any, *, progress: Progress | None = None, runtime: Runtime | None = None,
            **options: Any) -> dict[str, Any]:
    """Writes a model's file as a .tsr file, in bounded memory. Options: compress, verify, and to quantise type, pure,
    output_type, embedding_type, imatrix, threads. What was read and what was written."""
    paths = arguments.path("source", source), arguments.path("out", out)
    with Options(options) as o:
        return _finished("conversion", raw.tsr_conversion_free, lambda r: raw.tsr_conversion_new(r, *paths, o),
                         raw.tsr_conversion_step, lambda c: json.loads(text(raw.tsr_conversion_finish(c))), runtime, progress)


def export(source: Any, out: Any, *, progress: Progress | None = None, runtime: Runtime | None = None,
           **options: Any) -> dict[str, Any]:
    """Writes a model, or the model of a file, for other projects: a Hugging Face folder or a GGUF file. Options: format (hf,
    gguf, peft), adapters, merged, type, tokenizer, threads, shard_bytes, pure, output_type, embedding_type, imatrix."""
    from .model import Model
    folder = arguments.path("out", out)
    with Options(options) as o:
        if isinstance(source, Model):
            with source._pointer as m:
                return _exported(lambda r: raw.tsr_export_new_for_model(r, m, folder, o), runtime, progress)
        file = arguments.path("source", source)
        return _exported(lambda r: raw.tsr_export_new(r, file, folder, o), runtime, progress)


def _exported(begin: _Call, runtime: Runtime | None, progress: Progress | None) -> dict[str, Any]:
    return _finished("export", raw.tsr_export_free, begin, raw.tsr_export_step,
                     lambda c: json.loads(text(raw.tsr_export_finish(c))), runtime, progress)


def imatrix(model: Model, ids: Any, out: Any, *, progress: Progress | None = None, runtime: Runtime | None = None,
            **options: Any) -> dict[str, Any]:
    """Writes an importance matrix of a text's token ids, for option imatrix of `convert`. Options: seq, batch, bos, name,
    and those that place a Scorer."""
    from .model import Model
    tokens, file = arguments.ids("ids", ids), arguments.path("out", out)
    with use(model, Model, "model") as m, Options(options) as o:
        return _finished("imatrix", raw.tsr_imatrix_free, lambda r: raw.tsr_imatrix_new(r, m, tokens, file, o),
                         raw.tsr_imatrix_step, lambda c: json.loads(text(raw.tsr_imatrix_finish(c))), runtime, progress)


def check_path(path: Any) -> None:
    """Raises what Model.save of this path would, to know it before hours of work."""
    check(raw.tsr_model_check_path(arguments.path("path", path)))


def verify(path: Any) -> None:
    """Reads a .tsr file through and checks every checksum; CorruptError names the tensor."""
    check(raw.tsr_model_verify(arguments.path("path", path)))
