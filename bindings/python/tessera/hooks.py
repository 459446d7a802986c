"""Hooks: functions of the program that replace the library's, or are notified."""
from __future__ import annotations

import dataclasses
from typing import Any, Callable

from .errors import InvalidArgumentError

_NAMES = ("allocate", "deallocate", "thread_started")


@dataclasses.dataclass(frozen=True)
class Hooks:
    """`Runtime(hooks=Hooks(thread_started=lambda role, number: os.sched_setaffinity(0, {number})))`. Any object with some of
    these methods will do. They are called from any thread, several at a time, and may not use handles of this package. What
    they raise goes to sys.unraisablehook. The library keeps them until the runtime and all that was made from it are freed.

    allocate(bytes, alignment): the address of memory for arenas on CPU devices, aligned to a power of two; None: there is
    none, which is OutOfMemoryError. deallocate(address, bytes) gives it back. Both or none.

    thread_started(role, number): the first that a thread which computes does. role: "kernels" (number: 1 to threads - 1 of
    the pool), "rank" or "stream" (the device's number), "generator" or "work" (0)."""

    allocate: Callable[[int, int], int | None] | None = None
    deallocate: Callable[[int, int], Any] | None = None
    thread_started: Callable[[str, int], Any] | None = None

    def __post_init__(self) -> None:
        for name in _NAMES:
            if self.__dict__[name] is None:
                object.__delattr__(self, name)  # the default is the class's, or a method of a subclass


def functions(hooks: Any) -> tuple[Any, ...]:
    """The three functions of an object, each of which may be None."""
    found = tuple(getattr(hooks, name, None) for name in _NAMES)
    if not any(hasattr(hooks, name) for name in _NAMES):
        raise InvalidArgumentError(f"hooks: found {type(hooks).__name__}, wanted an object with {', '.join(_NAMES)}")
    for name, function in zip(_NAMES, found):
        if function is not None and not callable(function):
            raise InvalidArgumentError(f"hooks.{name}: found {type(function).__name__}, wanted a function")
    return found
