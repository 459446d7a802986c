"""Handles of C.

A handle is freed when it is closed, or garbage, and no call uses it: calls in progress and views keep it. What is closed
is refused with InvalidArgumentError. C counts references, so that any order of freeing is safe.
"""
from __future__ import annotations

import atexit
import contextlib
import os
import threading
import weakref
from typing import Any, Callable, ClassVar, Iterator, NoReturn, Self

from . import raw
from .errors import InvalidArgumentError, result


class Pointer:
    """A pointer of C. `with pointer as c:` uses it for a call; where the noun is for one thread at a time, other threads
    wait meanwhile. What frees it is an Owner of C, to which this object and the uses in progress refer."""

    __slots__ = ("noun", "_address", "_owner", "_uses", "_turn", "__weakref__")

    def __init__(self, noun: str, free: Callable[[int], None], answer: tuple[Any, ...], exclusive: bool = False):
        self.noun = noun
        self._address = result(answer)
        self._owner = raw.tsr_raw_owner(free, self._address)
        self._uses: list[raw.Owner] = []
        self._turn = threading.RLock() if exclusive else None
        _register(self)

    @property
    def owner(self) -> raw.Owner:
        """Keeps the handle as long as there is a reference to it."""
        owner = self._owner
        if owner is None:
            raise InvalidArgumentError(f"the {self.noun} is closed")
        return owner

    @property
    def closed(self) -> bool:
        return self._owner is None

    def close(self) -> None:
        self._owner = None

    def __enter__(self) -> int:
        if self._turn is not None:
            self._turn.acquire()
        try:
            self._uses.append(self.owner)
        except BaseException:
            if self._turn is not None:
                self._turn.release()
            raise
        return self._address

    def __exit__(self, *_: Any) -> None:
        try:
            self._uses.pop()
        finally:
            if self._turn is not None:
                self._turn.release()

    @contextlib.contextmanager
    def shared(self) -> Iterator[int]:
        """A use that does not wait for its turn: of *_cancel."""
        owner = self.owner
        yield self._address
        del owner

    def _renew_turn(self) -> None:
        self._turn = self._turn and threading.RLock()


# References without callbacks, which would be steps of the interpreter; dead ones go now and then.
_registered: list[weakref.ref[Pointer]] = []
_registry = threading.RLock()
_limit = 64


def _register(pointer: Pointer) -> None:
    global _limit
    with _registry:
        _registered.append(weakref.ref(pointer))
        if len(_registered) > _limit:
            _registered[:] = [each for each in _registered if each() is not None]
            _limit = 2 * len(_registered) + 64


def _alive() -> list[Pointer]:
    return [pointer for pointer in [each() for each in _registered] if pointer is not None]


class Handle:
    """What owns a handle of C: a context manager, closed at its end."""

    _free: ClassVar[Callable[[int], None]]
    _exclusive: ClassVar[bool] = False  # one thread at a time
    _pointer: Pointer

    @classmethod
    def _made(cls, answer: tuple[Any, ...]) -> Pointer:
        return Pointer(cls.__name__.lower(), cls._free, answer, cls._exclusive)

    @classmethod
    def _own(cls, answer: tuple[Any, ...]) -> Self:
        """An object of the handle that a call made."""
        self = cls.__new__(cls)
        self._pointer = cls._made(answer)
        return self

    def close(self) -> None:
        """Frees it, now or when the calls and views that use it end. Any number of times, from any thread."""
        pointer = getattr(self, "_pointer", None)
        if pointer is not None:
            pointer.close()

    @property
    def closed(self) -> bool:
        return self._pointer.closed

    def __enter__(self) -> Self:
        if self._pointer.closed:
            raise InvalidArgumentError(f"the {self._pointer.noun} is closed")
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"a {type(self).__name__} cannot be pickled or copied: it is memory of this process")


def use(handle: Any, kind: type[Handle], name: str) -> Pointer:
    """The pointer of an argument, for a with statement."""
    if not isinstance(handle, kind):
        raise InvalidArgumentError(f"{name}: found {type(handle).__name__}, wanted a {kind.__name__}")
    return handle._pointer


def use_optional(handle: Any, kind: type[Handle], name: str) -> contextlib.AbstractContextManager[int]:
    """Likewise; None is NULL."""
    return contextlib.nullcontext(0) if handle is None else use(handle, kind, name)


@atexit.register
def _close_all() -> None:
    for pointer in _alive():
        pointer.close()
    raw.tsr_raw_shutdown()


def _after_fork() -> None:
    global _registry
    raw.tsr_raw_forked()
    _registry = threading.RLock()
    for pointer in _alive():
        pointer._renew_turn()


os.register_at_fork(after_in_child=_after_fork)
