"""Runtime and Devices."""
from __future__ import annotations

import enum
import json
import os
from typing import Any, Iterator

from . import arguments, raw
from .arguments import Options
from .errors import result, text
from .handle import Handle, use


class LogLevel(enum.IntEnum):
    DEBUG = 0
    INFO = 1
    WARNING = 2
    ERROR = 3


class Runtime(Handle):
    """Backends, the threads of their kernels, and the log. Any thread. After a fork it is of the parent alone.

    Options: threads, plugin_path, profile, log_level, log_capacity."""

    _free = raw.tsr_runtime_free

    def __init__(self, **options: Any):
        with Options(options) as o:
            self._pointer = self._made(raw.tsr_runtime_new(o))

    def backends(self) -> dict[str, Any]:
        """What can be used here and, where something cannot, why."""
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

    def cancel(self) -> None:
        """Any thread: calls in progress that plan, load or measure with this runtime raise CancelledError."""
        with self._pointer.shared() as c:
            raw.tsr_runtime_cancel(c)

    def devices(self, names: str) -> Devices:
        """Devices of this runtime."""
        return Devices(names, runtime=self)


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
