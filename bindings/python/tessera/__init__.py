"""Tessera trains and runs models on every device of a machine.

    import tessera

    tessera.finetune("small.tsr", "notes.txt", out="tuned.tsr", steps=200)
    model = tessera.load("tuned.tsr")
    for piece in model.generate("Once upon a time", max_tokens=50):
        print(piece, end="", flush=True)
    print(model.chat([{"role": "user", "content": "Hi"}], max_tokens=50))

It is a layer over the C library, whose header tessera.h is the manual: options are keyword arguments, reports are dicts.
Handles are context managers, and free themselves when they are garbage; what is closed is refused. Calls that may take long
let other threads run, and Ctrl-C ends them. Errors are TesseraError, in classes that are also the builtin that fits.
"""
from __future__ import annotations

from . import raw
from .errors import (AbortedError, BusyError, CancelledError, ChangedError, Code, CorruptError, ExistsError,
                     FailedPreconditionError, ForkedError, InternalError, InvalidArgumentError, IoError, NotFiniteError,
                     NotFoundError, OutOfMemoryError, TesseraError, TimedOutError, UnsupportedError, ValuesLostError,
                     taken_error)

_status = raw.tsr_version_check(raw.TSR_VERSION)
if _status:
    raise ImportError(f"libtessera: {taken_error(_status)}")
del _status

from .adapter_trainer import AdapterTrainer, Pass  # noqa: E402
from .calibration import Calibration  # noqa: E402
from .chat import Chat, EncodedChat  # noqa: E402
from .dataset import Dataset  # noqa: E402
from .dtype import DType, dtype_name  # noqa: E402
from .embedder import Embedder  # noqa: E402
from .engine import Engine, Event, Request  # noqa: E402
from .files import check_options, check_path, check_run_paths, check_text, check_text_path, convert  # noqa: E402
from .files import export, imatrix, read_text, verify, word_hint, write_text  # noqa: E402
from .finetuning import finetune  # noqa: E402
from .generator import Generator, Piece, Stream  # noqa: E402
from .graph import Graph, Type  # noqa: E402
from .hooks import Hooks  # noqa: E402
from .model import Model  # noqa: E402
from .plan import Plan, check_certificate, estimate, estimate_page, memory_needs, plan_jointly, plan_methods  # noqa: E402
from .request_files import generate_file  # noqa: E402
from .run import Run, RunEvent, check_run, resumed_folder  # noqa: E402
from .run_log import RunLog  # noqa: E402
from .runtime import Devices, LogLevel, Runtime, default_runtime  # noqa: E402
from .scorer import Scorer, Scores, score  # noqa: E402
from .sequence import Sequence  # noqa: E402
from .session import Program, Session, kernel_times  # noqa: E402
from .tensor import Tensor  # noqa: E402
from .tokenizer import Encoded, Tokenizer  # noqa: E402
from .trainer import Batch, Loss, Saving, Step, Trainer, check_folder, checkpoint_info  # noqa: E402

load = Model.load


def version() -> tuple[int, int, int]:
    """Of the library: (major, minor, patch)."""
    number = raw.tsr_version()
    return number // 10000, number // 100 % 100, number % 100


__version__ = ".".join(map(str, version()))

__all__ = [
    "AbortedError", "AdapterTrainer", "Batch", "BusyError", "Calibration", "CancelledError", "ChangedError", "Chat", "Code",
    "CorruptError", "DType", "Dataset", "Devices", "Embedder", "Encoded", "EncodedChat", "Engine", "Event",
    "ExistsError", "FailedPreconditionError", "ForkedError", "Generator", "Graph", "Hooks", "InternalError",
    "InvalidArgumentError", "IoError", "LogLevel", "Loss", "Model", "NotFiniteError", "NotFoundError",
    "OutOfMemoryError", "Pass", "Piece", "Plan", "Program", "Request", "Run", "RunEvent", "RunLog", "Runtime", "Saving",
    "Scorer", "Scores", "Sequence", "Session", "Step", "Stream", "Tensor", "TesseraError", "TimedOutError", "Tokenizer",
    "Trainer", "Type", "UnsupportedError", "ValuesLostError", "check_certificate", "check_folder", "check_options",
    "check_path", "check_run", "check_run_paths", "check_text", "check_text_path", "checkpoint_info", "convert",
    "default_runtime", "dtype_name", "estimate", "estimate_page", "export", "finetune", "generate_file", "imatrix",
    "kernel_times", "load", "memory_needs", "plan_jointly", "plan_methods", "read_text", "resumed_folder", "score", "verify", "version",
    "word_hint", "write_text",
]
