"""Brings an engine's events to those who collect them: all to one, or each to its request."""
from __future__ import annotations

import atexit
import collections
import os
import threading
import weakref
from typing import TYPE_CHECKING, Callable

from .errors import FailedPreconditionError, InternalError, TesseraError

if TYPE_CHECKING:
    from .engine import Event

SLICE_S = 0.05  #: how long a wait in C lasts before it looks at signals and closes


class Entry:
    """Events of a request that were not collected yet."""

    def __init__(self) -> None:
        self.events: collections.deque[Event] = collections.deque()
        self.texts = 0  # until it is submitted
        self.ended = 0
        self.watchers: list[Callable[[], None]] = []  # called once, at a change

    @property
    def is_complete(self) -> bool:
        """Whether no event is left, nor comes."""
        return self.has_ended and not self.events  # in this order: events come before the end

    @property
    def has_ended(self) -> bool:
        return 0 < self.texts <= self.ended

    def take(self) -> Event | None:
        try:
            return self.events.popleft()
        except IndexError:
            return None


class EventRouter:
    """`read_next` waits for an event for SLICE_S. A thread calls it, and distributes what it finds, while requests are in
    progress and any is collected by itself."""

    def __init__(self, read_next: Callable[[], Event | None]):
        self._read_next = read_next
        self._entries: dict[int, Entry] = {}  # of requests whose texts have not all ended
        self._reader = ""  # "all" or "each", once that is known
        self._thread: threading.Thread | None = None
        self._error: TesseraError | None = None  # after which nothing comes any more
        self._ends = False  # the interpreter does, and daemons with it
        self._renew_locks()
        _routers.add(self)

    def _renew_locks(self) -> None:
        self._lock = threading.RLock()
        self._reading = threading.Lock()  # one call of tsr_engine_next at a time

    def _choose(self, reader: str) -> None:
        self._reader = self._reader or reader
        if self._reader != reader:
            raise FailedPreconditionError(
                "the engine's events are collected by its requests, so that next and events would find none: use one of both, "
                "or another engine" if reader == "all" else
                "the engine's events are collected by next or events, so that a request has none of its own: use one of both, "
                "or another engine")

    def choose_all(self) -> None:
        with self._lock:
            self._choose("all")

    def choose_each(self) -> None:
        with self._lock:
            self._choose("each")

    @property
    def is_busy(self) -> bool:
        """Whether events are still to come."""
        return bool(self._entries)

    def add(self, number: int, texts: int) -> Entry:
        """Of a request that was submitted; its events may have come already."""
        with self._lock:
            entry = self._entries.setdefault(number, Entry())
            entry.texts = texts
            if entry.has_ended:
                del self._entries[number]
            return entry

    def read(self, read_next: Callable[[], Event | None]) -> Event | None:
        """The next event of any request, which is noted."""
        with self._reading:
            event = read_next()
            if event is not None:
                self._note(event)
            return event

    def _note(self, event: Event) -> None:
        with self._lock:
            entry = self._entries.setdefault(event.request, Entry())
            if self._reader == "each":
                entry.events.append(event)
            if event.kind == "end":
                entry.ended += 1
            if entry.has_ended:
                del self._entries[event.request]
            self._wake(entry)

    @staticmethod
    def _wake(entry: Entry) -> None:
        watchers, entry.watchers = entry.watchers, []
        for tell in watchers:
            tell()

    def watch(self, entry: Entry, tell: Callable[[], None]) -> None:
        """Calls `tell` once when there is an event or an end, from any thread; raises where nothing comes any more."""
        with self._lock:
            self._choose("each")
            if entry.events or entry.has_ended:
                tell()
                return
            if self._error is not None and not (self._ends and threading.current_thread().daemon):
                raise type(self._error)(*self._error.args)
            entry.watchers.append(tell)
            if self._thread is None and self._error is None:
                thread = threading.Thread(target=self._distribute, name="tessera-engine", daemon=True)
                thread.start()
                self._thread = thread

    def wait(self, entry: Entry) -> None:
        """Until there is an event or an end. Ctrl-C comes out."""
        changed = threading.Event()
        self.watch(entry, changed.set)
        changed.wait()

    def fail(self, error: TesseraError) -> None:
        """No further events: all waiting callers get the error."""
        with self._lock:
            self._error = self._error or error
            for entry in self._entries.values():
                self._wake(entry)

    def _distribute(self) -> None:
        while True:
            with self._lock:
                if self._thread is not threading.current_thread():
                    return
                if not self._entries or self._error is not None:
                    self._thread = None
                    return
            try:
                self.read(self._read_next)
            except TesseraError as error:
                self.fail(error.with_traceback(None))
            except BaseException as error:
                self.fail(InternalError(f"events were lost: {error!r}"))

    def end(self) -> None:
        """Returns when its thread has ended. A waiting daemon is not notified."""
        with self._lock:
            self._ends = True
            self._error = self._error or FailedPreconditionError("the interpreter ends")
            thread = self._thread
        if thread is not None:
            thread.join()

    def _after_fork(self) -> None:
        self._thread = None  # there is none in the child
        self._renew_locks()


_routers: weakref.WeakSet[EventRouter] = weakref.WeakSet()


@atexit.register
def _end_all() -> None:
    for router in list(_routers):
        router.end()


def _after_fork() -> None:
    for router in list(_routers):
        router._after_fork()


os.register_at_fork(after_in_child=_after_fork)
