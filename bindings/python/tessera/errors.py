"""What calls raise: TesseraError, one class a code. Each class is also the builtin exception that fits, so that
`except FileNotFoundError` and `except ValueError` find theirs."""
from __future__ import annotations

import enum
import functools
from typing import Any

from . import raw


class Code(enum.IntEnum):
    """The values of tsr_code."""

    OK = 0
    INVALID_ARGUMENT = 1
    NOT_FOUND = 2
    CORRUPT = 3
    UNSUPPORTED = 4
    OUT_OF_MEMORY = 5
    IO = 6
    CANCELLED = 7
    ABORTED = 8
    FAILED_PRECONDITION = 9
    TIMEOUT = 10
    INTERNAL = 11
    NOT_FINITE = 12
    VALUES_LOST = 13
    BUSY = 14
    EXISTS = 15
    CHANGED = 16
    FORKED = 17


class TesseraError(Exception):
    """An error of the library. Its text says what was found, what was wanted and what to do."""

    code: Code | int = Code.INTERNAL

    @property
    def message(self) -> str:
        return str(self.args[0]) if self.args else ""

    @property
    def code_name(self) -> str:
        """As C names it: "invalid_argument"."""
        return raw.tsr_code_name(int(self.code))

    @functools.cached_property
    def numbers(self) -> dict[str, int]:
        """Numbers that the text says in words: "needed_bytes", "smallest_limit_bytes" and so on, of OutOfMemoryError."""
        return {}

    def __str__(self) -> str:
        return self.message


class InvalidArgumentError(TesseraError, ValueError):
    """A value of the caller's is wrong; also a handle that is closed."""

    code = Code.INVALID_ARGUMENT


class NotFoundError(TesseraError, FileNotFoundError, LookupError):
    """A file, tensor, op, device or backend does not exist."""

    code = Code.NOT_FOUND


class CorruptError(TesseraError, ValueError):
    """A file does not hold what its format promises."""

    code = Code.CORRUPT


class UnsupportedError(TesseraError, NotImplementedError):
    """Valid, but not something that this build or backend does."""

    code = Code.UNSUPPORTED


class OutOfMemoryError(TesseraError, MemoryError):
    """An allocation failed, or a plan cannot fit the memory limit."""

    code = Code.OUT_OF_MEMORY


class IoError(TesseraError, OSError):
    """The operating system, or a reader of Python, refused a read or a write."""

    code = Code.IO


class CancelledError(TesseraError):
    """As asked by a cancel."""

    code = Code.CANCELLED


class AbortedError(TesseraError, RuntimeError):
    """Another device failed first."""

    code = Code.ABORTED


class FailedPreconditionError(TesseraError, RuntimeError):
    """Not in this state: nothing fed, not done yet, no tokenizer."""

    code = Code.FAILED_PRECONDITION


class TimedOutError(TesseraError, TimeoutError):
    """No progress within the time allowed."""

    code = Code.TIMEOUT


class InternalError(TesseraError, RuntimeError):
    """A bug in the library or in a plugin; please report the text."""

    code = Code.INTERNAL


class NotFiniteError(TesseraError, FloatingPointError):
    """A loss, gradient or result is no finite number; nothing was changed by it."""

    code = Code.NOT_FINITE


class ValuesLostError(TesseraError, RuntimeError):
    """The values on the devices are lost: resume, restore, or make the object again."""

    code = Code.VALUES_LOST


class BusyError(TesseraError, RuntimeError):
    """In use by another thread, handle or process: again later."""

    code = Code.BUSY


class ExistsError(TesseraError, FileExistsError):
    """What is there would be overwritten: say that it may be, or name another place."""

    code = Code.EXISTS


class ChangedError(TesseraError, OSError):
    """A file in use was written to since it was opened: open it again."""

    code = Code.CHANGED


class ForkedError(TesseraError, RuntimeError):
    """A forked child: make the runtime after forking."""

    code = Code.FORKED


_CLASSES: dict[int, type[TesseraError]] = {int(c.code): c for c in TesseraError.__subclasses__()}


def error_of(code: int, message: str) -> TesseraError:
    """The exception of a code."""
    error = _CLASSES.get(code, TesseraError)(message)
    if code not in _CLASSES:
        error.code = code  # of a later library
    return error


def taken_error(status: int) -> TesseraError:
    """The exception of a status, which is freed."""
    code, message = raw.tsr_status_code(status), raw.tsr_status_message(status)
    numbers: dict[str, int] = {}
    while key := raw.tsr_status_number_key(status, len(numbers)):
        numbers[key] = raw.tsr_status_number(status, key)[1]
    raw.tsr_status_free(status)
    error = error_of(code, message)
    if numbers:
        error.numbers = numbers
    return error


def check(status: int) -> None:
    """Raises what a status says."""
    if status:
        raise taken_error(status)


def result(answer: tuple[Any, ...]) -> Any:
    """What a call returned after its status, which is checked: a value, or a tuple of several."""
    check(answer[0])
    return answer[1] if len(answer) == 2 else answer[1:]


def text_bytes(answer: tuple[int, int]) -> bytes:
    """The bytes of the text that a call made, which is freed."""
    made = result(answer)
    try:
        return raw.tsr_text_data(made) if raw.tsr_text_size(made) else b""
    finally:
        raw.tsr_text_free(made)


def text(answer: tuple[int, int]) -> str:
    return text_bytes(answer).decode("utf-8", "replace")
