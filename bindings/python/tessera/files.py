"""Long work over files of models: load, convert, export, importance matrices. Each tells `progress` the share that is done;
what that raises, and Ctrl-C, end the work, come out and leave no file."""
from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Callable

from . import arguments, raw
from .arguments import Options
from .errors import check, text, text_bytes
from .handle import use
from .runtime import Runtime, chosen_runtime
from .work import Progress, run_work, signals_arrive

if TYPE_CHECKING:
    from .model import Model


_Call = Callable[[int], tuple[Any, ...]]


def _finished(begin: _Call, finish: Callable[[int], Any], runtime: Runtime | None, progress: Progress | None) -> Any:
    """Long work that a runtime's cancel ends."""
    runtime = chosen_runtime(runtime)
    with runtime._pointer as r:
        return run_work(lambda: begin(r), finish, progress, runtime.cancel)


def load_steps(path: Any, finish: Callable[[int], Any], options: dict[str, Any], runtime: Runtime | None,
               progress: Progress | None) -> Any:
    """Loads a model's file in steps; finish(work) makes the model."""
    file = arguments.path("path", path)
    with Options(options) as o:
        return _finished(lambda r: raw.tsr_model_begin_load(r, file, o), finish, runtime, progress)


def convert(source: Any, out: Any, *, progress: Progress | None = None, runtime: Runtime | None = None,
            **options: Any) -> dict[str, Any]:
    """Writes a model's file as a .tsr file, in bounded memory. Options: compress, verify, and to quantise type, pure,
    output_type, embedding_type, imatrix, threads. What was read and what was written."""
    paths = arguments.path("source", source), arguments.path("out", out)
    runtime = chosen_runtime(runtime)
    with runtime._pointer as r, Options(options) as o:
        return conversion_steps(lambda: raw.tsr_conversion_begin(r, *paths, o), progress, runtime.cancel)


def conversion_steps(begin: Callable[[], tuple[Any, ...]], progress: Progress | None,
                     cancel: Callable[[], None] = lambda: None) -> dict[str, Any]:
    """Runs the conversion that begin() makes; its report."""
    return run_work(begin, lambda c: json.loads(text(raw.tsr_conversion_finish(c))), progress, cancel)


def save_model(write: Callable[[int], int], begin: _Call, options: dict[str, Any], progress: Progress | None,
               by_steps: bool = False) -> None:
    """Writes a model in memory to a file: write(options) does it in one call, which nothing can end; begin(options) makes
    a conversion, which is taken where somebody listens or may interrupt. Both write the same bytes."""
    with Options(options) as o:
        if by_steps or progress is not None or options or signals_arrive():
            conversion_steps(lambda: begin(o), progress)
        else:
            check(write(o))


def export(source: Any, out: Any, *, progress: Progress | None = None, runtime: Runtime | None = None,
           **options: Any) -> dict[str, Any]:
    """Writes a model, or the model of a file, for other projects: a Hugging Face folder or a GGUF file. Options: format (hf,
    gguf, peft), adapters, merged, type, tokenizer, threads, shard_bytes, pure, output_type, embedding_type, imatrix."""
    from .model import Model
    folder = arguments.path("out", out)
    with Options(options) as o:
        if isinstance(source, Model):
            with source._pointer as m:
                return _exported(lambda r: raw.tsr_export_begin_for_model(r, m, folder, o), runtime, progress)
        file = arguments.path("source", source)
        return _exported(lambda r: raw.tsr_export_begin(r, file, folder, o), runtime, progress)


def _exported(begin: _Call, runtime: Runtime | None, progress: Progress | None) -> dict[str, Any]:
    return _finished(begin, lambda c: json.loads(text(raw.tsr_export_finish(c))), runtime, progress)


def imatrix(model: Model, ids: Any, out: Any, *, progress: Progress | None = None, runtime: Runtime | None = None,
            **options: Any) -> dict[str, Any]:
    """Writes an importance matrix of a text's token ids, for option imatrix of `convert`. Options: seq, batch, bos, name,
    and those that place a Scorer."""
    from .model import Model
    tokens, file = arguments.ids("ids", ids), arguments.path("out", out)
    with use(model, Model, "model") as m, Options(options) as o:
        return _finished(lambda r: raw.tsr_imatrix_begin(r, m, tokens, file, o),
                         lambda c: json.loads(text(raw.tsr_imatrix_finish(c))), runtime, progress)


def check_path(path: Any) -> None:
    """Raises what Model.save of this path would, to know it before hours of work."""
    check(raw.tsr_model_check_path(arguments.path("path", path)))


def check_run_paths(out: Any = "", checkpoint: Any = "", resumed: Any = "") -> None:
    """Raises ExistsError where an earlier run's result is at out, or its checkpoint in the folder checkpoint, and the
    run does not go on from it (resumed)."""
    check(raw.tsr_run_check_paths(arguments.path("out", out), arguments.path("checkpoint", checkpoint),
                                  arguments.path("resumed", resumed)))


def check_options(consumer: str, **options: Any) -> None:
    """Raises what the maker of a consumer (trainer, plan, generator, engine, scorer, embedder, imatrix or dataset) would raise for
    these options by themselves, before models and data are read."""
    name = arguments.text("consumer", consumer, nul=False)
    with Options(options) as o:
        if o:
            check(raw.tsr_options_check(o, name))


def word_hint(kind: str, word: str, known: list[str]) -> str:
    """What may be meant by a word that is none of those known: the end of a message about it, such as "did you mean --lr?"; ""
    where nothing is. kind: "option", of another project or misspelt, or "command", of the program tessera."""
    return text(raw.tsr_word_hint(arguments.text("kind", kind, nul=False), arguments.text("word", word, nul=False),
                                  arguments.text("known", " ".join(known), nul=False)))


def check_text(source: str | bytes, name: str = "text", takes_tables: bool = False) -> None:
    """Raises where a text is none that is read as such: rows of JSON, a table, a binary format, or no UTF-8."""
    check(raw.tsr_text_check(arguments.text("source", source), arguments.path("name", name), int(takes_tables)))


def read_text(path: Any, most: int = 0) -> bytes:
    """All of a file, of a pipe, or of standard input for "-": at most `most` bytes (0: any) and half of the memory."""
    return text_bytes(raw.tsr_text_read(arguments.path("path", path), most))


def write_text(path: Any, source: str | bytes) -> None:
    """Writes a text to a file: whole or not at all, with the permissions of the file that it replaces."""
    check(raw.tsr_text_write(arguments.text("source", source), arguments.path("path", path)))


def check_text_path(path: Any, takes_devices: bool = True) -> None:
    """Raises what write_text would raise at once; without takes_devices also for devices, pipes and sockets."""
    check(raw.tsr_text_check_path(arguments.path("path", path), int(takes_devices)))


def verify(path: Any) -> None:
    """Reads a .tsr file through and checks every checksum; CorruptError names the tensor."""
    check(raw.tsr_model_verify(arguments.path("path", path)))
