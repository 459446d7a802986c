"""Values of Python as C reads them. What is wrong is an InvalidArgumentError with what was found and what was wanted."""
from __future__ import annotations

import array
import json
import numbers
import operator
import os
from typing import Any, Callable, Iterable, Mapping, Sequence

from . import raw
from .errors import InvalidArgumentError, check, result

_FORMATS = {"b": "int8", "B": "uint8", "c": "bytes", "h": "int16", "H": "uint16", "i": "int32", "I": "uint32",
            "l": "int64", "L": "uint64", "q": "int64", "Q": "uint64", "e": "float16", "f": "float32", "d": "float64",
            "?": "bool"}


def text(name: str, value: Any, nul: bool = True) -> bytes:
    """UTF-8 of a str; bytes are taken as they are. nul: whether NULs may be in it."""
    if isinstance(value, (bytes, bytearray, memoryview)):
        data = bytes(value)
    elif isinstance(value, str):
        try:
            data = value.encode()
        except UnicodeEncodeError as error:
            raise InvalidArgumentError(f"{name}: found U+{ord(value[error.start]):04X}, half of a surrogate pair, at "
                                       f"character {error.start}, wanted text that UTF-8 can hold") from error
    else:
        raise InvalidArgumentError(f"{name}: found {type(value).__name__}, wanted a str")
    if not nul and b"\0" in data:
        raise InvalidArgumentError(f"{name}: found {value!r} with a NUL at byte {data.index(0)}, wanted none")
    return data


def path(name: str, value: Any) -> bytes:
    """A path as the file system has it."""
    try:
        data = os.fsencode(value)
    except (TypeError, UnicodeEncodeError) as error:
        raise InvalidArgumentError(f"{name}: found {value!r}, wanted a path") from error
    if b"\0" in data:
        raise InvalidArgumentError(f"{name}: found {value!r} with a NUL at byte {data.index(0)}, wanted none")
    return data


def seconds(name: str, value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidArgumentError(f"{name}: found {value!r}, wanted seconds") from error
    if not number >= 0:
        raise InvalidArgumentError(f"{name}: found {number}, wanted seconds, at least 0")
    return number


def describe(view: memoryview) -> str:
    """"int64 [3, 4]", of a buffer."""
    code = view.format.lstrip("@=<")
    return f"{_FORMATS.get(code, repr(view.format))} {list(view.shape or ())}"


def is_format(view: memoryview, wanted: str) -> bool:
    """Whether the items of a buffer are native ones of a type such as "int32"."""
    code = view.format.lstrip("@=<")
    return _FORMATS.get(code) == wanted or (wanted == "int32" and code == "l" and view.itemsize == 4)


def buffer(name: str, value: Any, wanted: str) -> memoryview | None:
    """A flat C-contiguous buffer of a type; None where the value has no buffer."""
    try:
        view = memoryview(value)
    except TypeError:
        return None
    except (BufferError, ValueError) as error:
        raise InvalidArgumentError(f"{name}: {error}; wanted C-contiguous {wanted}") from error
    if not is_format(view, wanted):
        raise InvalidArgumentError(f"{name}: found a buffer of {describe(view)}, wanted {wanted}")
    if not view.c_contiguous:
        raise InvalidArgumentError(f"{name}: found a buffer with gaps or another order, wanted C-contiguous {wanted}")
    return view


def items(name: str, code: str, wanted: str, values: Any) -> Any:
    """A buffer of the type, or an array that is made of numbers."""
    found = buffer(name, values, wanted)
    if found is not None:
        return found
    try:
        return array.array(code, values)
    except (TypeError, OverflowError, ValueError) as error:
        raise InvalidArgumentError(f"{name}: {error}; wanted numbers of {wanted}") from error


def ids(name: str, values: Any) -> Any:
    """Token ids: a buffer of int32, or ints."""
    return items(name, "i", "int32", values)


def dims(name: str, values: Iterable[int]) -> Any:
    return items(name, "q", "int64", values)


def joined_texts(name: str, texts: Iterable[Any]) -> tuple[bytes, array.array[int]]:
    """Texts one after another, and the bytes of each."""
    if isinstance(texts, (str, bytes)):
        raise InvalidArgumentError(f"{name}: found one {type(texts).__name__}, wanted several in a list")
    parts = [text(f"{name}[{i}]", each) for i, each in enumerate(texts)]
    return b"".join(parts), array.array("Q", map(len, parts))


def joined_ids(name: str, texts: Iterable[Any]) -> tuple[array.array[int], array.array[int]]:
    """Token ids of texts one after another, and how many each has."""
    all_ids: array.array[int] = array.array("i")
    lengths: array.array[int] = array.array("Q")
    for i, each in enumerate(texts):
        part = ids(f"{name}[{i}]", each)
        all_ids.frombytes(memoryview(part).cast("B"))
        lengths.append(len(part) if isinstance(part, array.array) else part.nbytes // 4)
    return all_ids, lengths


_TEXT_LISTS = ("stop", "tools", "documents", "samples", "sample_messages")


def _list_option(key: str, values: Sequence[Any]) -> Any:
    """stop: a JSON array of texts; stop_ids: "2,13"; other lists are of ints."""
    if key == "stop_ids":
        return ",".join(str(operator.index(each)) for each in values)
    if values and all(isinstance(each, str) for each in values) or key in _TEXT_LISTS:
        return json.dumps(list(values))
    return dims(f"option '{key}'", [operator.index(each) for each in values])


def integer(value: Any) -> int | None:
    """Of an int or bool, also NumPy's; None for others."""
    try:
        return operator.index(value)
    except TypeError:
        return int(value) if type(value).__name__ in ("bool", "bool_") else None


class Options:
    """A tsr_options for the calls of a with statement. Integers, bools, floats, texts, paths and lists of integers; a
    value of None is left out, so that the default holds."""

    def __init__(self, values: Mapping[str, Any]):
        self._values = {key: value for key, value in values.items() if value is not None}
        self._pointer = 0

    def __enter__(self) -> int:
        if self._values:
            self._pointer = result(raw.tsr_options_new())
            try:
                for key, value in self._values.items():
                    self._set(key, value)
            except BaseException:
                self.__exit__()
                raise
        return self._pointer

    def __exit__(self, *_: Any) -> None:
        pointer, self._pointer = self._pointer, 0
        raw.tsr_options_free(pointer)

    def _set(self, key: str, value: Any) -> None:
        name = text("key of an option", key, nul=False)
        what = f"option '{key}'"
        if isinstance(value, Mapping):
            if key == "symbols":
                value = ",".join(f"{symbol}={extent}" for symbol, extent in value.items())
            else:
                value = json.dumps(dict(value))
        elif isinstance(value, (list, tuple, range)):
            value = _list_option(key, value)
        if isinstance(value, (str, bytes)):
            check(raw.tsr_options_set_str(self._pointer, name, text(what, value, nul=False)))
        elif isinstance(value, os.PathLike):
            check(raw.tsr_options_set_str(self._pointer, name, path(what, value)))
        elif isinstance(value, array.array):
            check(raw.tsr_options_set_i64_list(self._pointer, name, value))
        elif (number := integer(value)) is not None:
            if not -(1 << 63) <= number < 1 << 63:
                raise InvalidArgumentError(f"{what}: found {number}, wanted an integer of 64 bits")
            check(raw.tsr_options_set_i64(self._pointer, name, number))
        elif isinstance(value, numbers.Real):
            check(raw.tsr_options_set_f64(self._pointer, name, float(value)))
        else:
            raise InvalidArgumentError(f"{what}: found a {type(value).__name__}, wanted an int, bool, float, str, path or "
                                       "list of ints")


def short_text(ask: Callable[[bytearray | None], tuple[int, int]]) -> str:
    """A text that a handle holds: ask(buffer) returns (status, size with the NUL)."""
    size = result(ask(None))
    while True:
        found = bytearray(size)
        needed = result(ask(found))
        if needed <= size:
            return bytes(found[:max(needed - 1, 0)]).decode("utf-8", "replace")
        size = needed


def counted(code: str, ask: Callable[[Any], tuple[int, int]]) -> array.array[Any]:
    """Items that a handle holds: ask(buffer) returns (status, count)."""
    count = result(ask(None))
    while True:
        found = array.array(code, bytes(count * array.array(code).itemsize))
        needed = result(ask(found))
        if needed <= count:
            return found[:needed]
        count = needed
