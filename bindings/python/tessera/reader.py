"""Models out of memory and file objects of Python."""
from __future__ import annotations

import io
import threading
from typing import Any

from . import raw
from .errors import InvalidArgumentError, taken_error

_CHUNK_BYTES = 16 << 20


def check_buffer(data: Any) -> None:
    try:
        with memoryview(data) as view:
            contiguous = view.c_contiguous
    except TypeError as error:
        raise InvalidArgumentError(f"data: found {type(data).__name__}, wanted bytes or another buffer") from error
    if not contiguous:
        raise InvalidArgumentError("data: found a buffer with gaps or another order, wanted C-contiguous")


class _Reader:
    """Fills views of C's memory from a file object, which one thread at a time uses."""

    def __init__(self, file: Any):
        self._file = file
        self._turn = threading.Lock()
        self.error: BaseException | None = None

    def __call__(self, offset: int, view: memoryview) -> bool:
        try:
            with self._turn:
                self._file.seek(offset)
                at = 0
                # The file's own bytes, copied: it must not keep a view of memory that is gone after the call.
                while at < len(view):
                    data = self._file.read(min(len(view) - at, _CHUNK_BYTES))
                    if not data:
                        raise EOFError(f"the file ends at byte {offset + at}, wanted {offset + len(view)}")
                    view[at:at + len(data)] = data
                    at += len(data)
            return True
        except BaseException as error:
            self.error = error
            return False


def load(file: Any, size: int | None) -> tuple[int, int]:
    """What tsr_model_load_reader returns; where it fails, the error with what the file raised as its cause."""
    if not hasattr(file, "read") or not hasattr(file, "seek"):
        raise InvalidArgumentError(f"file: found {type(file).__name__}, wanted an object with read and seek")
    if isinstance(file, io.TextIOBase):
        raise InvalidArgumentError("file: found a text file, wanted a binary one: open(path, 'rb')")
    if size is None:
        size = file.seek(0, io.SEEK_END)
        if not isinstance(size, int):
            size = file.tell()
    reader = _Reader(file)
    status, model = raw.tsr_raw_model_load_reader(reader, size)
    if status:
        error = taken_error(status)
        if isinstance(reader.error, (KeyboardInterrupt, SystemExit)):
            raise reader.error
        raise error from reader.error
    return status, model
