"""Runtime, its log, and Devices."""
from __future__ import annotations

import enum
import json
import os
from typing import TYPE_CHECKING, Any, Callable, Iterator

from . import arguments, hooks as _hooks, raw
from .arguments import Options
from .errors import InvalidArgumentError, check, result, text
from .handle import Handle, use

if TYPE_CHECKING:
    import logging


class LogLevel(enum.IntEnum):
    DEBUG = 0
    INFO = 1
    WARNING = 2
    ERROR = 3


class Runtime(Handle):
    """Backends, the threads of their kernels, and the log. Any thread. After a fork it is of the parent alone.

    hooks: Hooks, or an object like it. Options: threads, plugin_path, profile, log_level, log_capacity."""

    _free = raw.tsr_runtime_free

    def __init__(self, *, hooks: Any = None, **options: Any):
        with Options(options) as o:
            self._pointer = self._made(raw.tsr_runtime_new(o) if hooks is None else
                                       raw.tsr_raw_runtime_new_with_hooks(o, *_hooks.functions(hooks)))

    def backends(self) -> dict[str, Any]:
        """The devices here, and why others are unavailable."""
        with self._pointer as c:
            return json.loads(text(raw.tsr_runtime_backends(c)))

    def log(self) -> Iterator[tuple[LogLevel, str]]:
        """Takes the records that are queued now, oldest first."""
        while True:
            with self._pointer as c:
                level, size = result(raw.tsr_runtime_next_log(c, None))
                while True:
                    found = bytearray(size)
                    level, needed = result(raw.tsr_runtime_next_log(c, found))
                    if needed <= size:
                        break
                    size = needed
            if needed == 0:
                return
            yield LogLevel(level), bytes(found[:needed - 1]).decode("utf-8", "replace")

    def set_log(self, log: Callable[[LogLevel, str], Any] | logging.Logger | None) -> None:
        """Tells log(level, text), or a logging.Logger, each record as it is made, besides the queue; None ends that. It is
        called in whatever thread makes the record, by one at a time, and must return soon: it may neither wait for another
        thread that uses the runtime nor call set_log. What it raises goes to sys.unraisablehook. The library keeps it until
        the runtime and all that was made from it are freed: where it refers to the runtime, close that."""
        function = _log_function(log)
        with self._pointer as c:
            check(raw.tsr_raw_runtime_set_log(c, function))

    def set_share(self, **options: Any) -> None:
        """Shares the cores between inference and training by turns: inference_share, 0 to 1, is inference's share while both
        have work; without options that ends. A step of inference waits for one micro-batch of training at most. Results are the
        same bits."""
        with Options(options) as o, self._pointer.shared() as c:
            check(raw.tsr_runtime_set_share(c, o))

    def join_share(self, other: Runtime) -> None:
        """What is made later with this runtime takes turns with that of `other`: one share for both."""
        use(other, Runtime, "other")
        with self._pointer.shared() as c, other._pointer.shared() as o:
            check(raw.tsr_runtime_join_share(c, o))

    def share(self) -> dict[str, Any]:
        """The turns of inference and of training, their seconds with the cores and their CPU seconds."""
        with self._pointer.shared() as c:
            return json.loads(text(raw.tsr_runtime_share(c)))

    def world(self) -> dict[str, Any]:
        """The number of this process and how many run together, and of their machines (option processes)."""
        with self._pointer.shared() as c:
            return json.loads(text(raw.tsr_runtime_world(c)))

    def cancel(self) -> None:
        """Any thread: calls in progress that plan, load or measure with this runtime raise CancelledError."""
        with self._pointer.shared() as c:
            raw.tsr_runtime_cancel(c)

    def devices(self, names: str) -> Devices:
        """Devices of this runtime."""
        return Devices(names, runtime=self)


def _log_function(log: Any) -> Callable[[int, str], Any] | None:
    """What is called with the level's number; it must not refer to the runtime."""
    if log is None:
        return None
    if hasattr(log, "isEnabledFor"):  # a Logger, or a LoggerAdapter
        return lambda level, text: log.log(10 * (level + 1), "%s", text)  # logging.DEBUG is 10, INFO 20, ...
    if not callable(log):
        raise InvalidArgumentError(f"log: found {type(log).__name__}, wanted a function, a logging.Logger or None")
    return lambda level, text: log(LogLevel(level), text)


_default: tuple[int, Runtime] | None = None


def default_runtime() -> Runtime:
    """The runtime of calls that are given none: one for the process, another in a forked child."""
    global _default
    if _default is None or _default[0] != os.getpid() or _default[1].closed:
        _default = os.getpid(), Runtime()
    return _default[1]


def chosen_runtime(runtime: Runtime | None) -> Runtime:
    if runtime is None:
        return default_runtime()
    use(runtime, Runtime, "runtime")
    return runtime


def refuse_runtime(runtime: Runtime | None) -> None:
    """Refuses a runtime given with a trainer, whose own is used."""
    if runtime is not None:
        raise InvalidArgumentError("runtime: found one with a trainer, wanted none: the trainer's is used")


class Devices(Handle):
    """The devices that a plan is made for and a session runs on. Immutable; any thread.

    "cpu:4" four virtual devices sharing the machine's cores; "cuda" every GPU; "cuda:0,1" those two."""

    _free = raw.tsr_devices_free

    def __init__(self, names: str, *, runtime: Runtime | None = None):
        self._runtime = chosen_runtime(runtime)
        name = arguments.text("names", names, nul=False)
        with self._runtime._pointer as r:
            self._pointer = self._made(raw.tsr_devices_open(r, name))

    def __len__(self) -> int:
        with self._pointer as c:
            return raw.tsr_devices_count(c)

    def info(self) -> dict[str, Any]:
        """Name, kind, memory and speed of each, and the link between them."""
        with self._pointer as c:
            return json.loads(text(raw.tsr_devices_info(c)))
