"""Program and Session: the low level, where nothing is hidden."""
from __future__ import annotations

import array
import contextlib
import json
from typing import TYPE_CHECKING, Any, Mapping

from . import arguments, raw
from .arguments import Options
from .errors import check, text
from .graph import Graph
from .handle import Handle, use
from .plan import Plan
from .runtime import Devices
from .tensor import Tensor, as_tensor
from .work import interruptible

if TYPE_CHECKING:
    from .model import Model


class Program(Handle):
    """What plans come to: for each device a fixed arena and a list of instructions. Immutable; any thread.

    `Program(devices, {"train_step": (graph, plan)})`: entries share parameters and state by name."""

    _free = raw.tsr_program_free

    def __init__(self, devices: Devices, entries: Mapping[str, tuple[Graph, Plan]]):
        names = b"".join(arguments.text("name of an entry", name, nul=False) + b"\0" for name in entries)
        with contextlib.ExitStack() as stack:
            d = stack.enter_context(use(devices, Devices, "devices"))
            plans = array.array("q", [stack.enter_context(use(plan, Plan, "plan")) for _, plan in entries.values()])
            graphs = {id(graph): use(graph, Graph, "graph") for graph, _ in entries.values()}
            # In one order, so that two threads cannot wait for each other.
            addresses = {key: stack.enter_context(graphs[key]) for key in sorted(graphs)}
            order = array.array("q", [addresses[id(graph)] for graph, _ in entries.values()])
            self._pointer = interruptible(lambda: self._made(raw.tsr_raw_program_new(d, names, order, plans)),
                                          devices._runtime.cancel)

    def info(self) -> dict[str, Any]:
        """Fingerprint, bytes of each device, instructions of each entry."""
        with self._pointer as c:
            return json.loads(text(raw.tsr_program_info(c)))

    def print(self, rank: int) -> str:
        """The instructions of one device, as text."""
        with self._pointer as c:
            return text(raw.tsr_program_print(c, rank))


class Session(Handle):
    """A program in memory, with state of its own. One thread at a time.

    Options: measure_memory, trace, offload_folder, host_memory_limit, watchdog."""

    _free = raw.tsr_session_free
    _exclusive = True

    def __init__(self, program: Program, **options: Any):
        with use(program, Program, "program") as p, Options(options) as o:
            self._pointer = self._made(raw.tsr_session_new(p, o))

    def write(self, name: str, value: Any) -> None:
        """A parameter, constant or state as a whole, of a Tensor or a buffer; copied."""
        with self._pointer as c, as_tensor("value", value)._pointer as t:
            check(raw.tsr_session_write(c, arguments.text("name", name, nul=False), t))

    def read(self, name: str) -> Tensor:
        """A copy of a parameter, constant or state."""
        with self._pointer as c:
            return Tensor._own(raw.tsr_session_read(c, arguments.text("name", name, nul=False)))

    def write_model(self, model: Model) -> None:
        """All parameters of the program from a model."""
        from .model import Model
        with self._pointer as c, use(model, Model, "model") as m:
            check(raw.tsr_session_write_model(c, m))

    def feed(self, entry: str, name: str, value: Any) -> None:
        """An input keeps its value until it is fed again."""
        with self._pointer as c, as_tensor("value", value)._pointer as t:
            check(raw.tsr_session_feed(c, arguments.text("entry", entry, nul=False),
                                       arguments.text("name", name, nul=False), t))

    def run(self, entry: str) -> None:
        """Runs an entry; Ctrl-C and `cancel` end it, after which the session wants `restore`."""
        name = arguments.text("entry", entry, nul=False)
        with self._pointer as c:
            check(interruptible(lambda: raw.tsr_session_run(c, name), self.cancel))

    def fetch(self, entry: str, output: str) -> Tensor:
        """An output of the entry's last run."""
        with self._pointer as c:
            return Tensor._own(raw.tsr_session_fetch(c, arguments.text("entry", entry, nul=False),
                                                     arguments.text("output", output, nul=False)))

    def cancel(self) -> None:
        """Any thread: the run in progress raises CancelledError."""
        with self._pointer.shared() as c:
            raw.tsr_session_cancel(c)

    def restore(self) -> None:
        """After a failed or cancelled run, before the next; state must be written again."""
        with self._pointer as c:
            check(raw.tsr_session_restore(c))

    def report(self) -> dict[str, Any]:
        """Memory of each device, and what was communicated."""
        with self._pointer as c:
            return json.loads(text(raw.tsr_session_report(c)))

    def trace(self) -> list[dict[str, Any]]:
        """What ran since the last call, in Chrome's trace format. Needs the option trace."""
        with self._pointer as c:
            return json.loads(text(raw.tsr_session_take_trace(c)))


def kernel_times(trace: list[dict[str, Any]] | str, **options: Any) -> dict[str, Any]:
    """The kernels of a trace, of a Session, Trainer or Generator, with the time that each would take if nothing but memory or products bound
    it. Options: entry, bytes_per_s, flops_per_s."""
    given = trace if isinstance(trace, str) else json.dumps(trace)
    with Options(options) as o:
        return json.loads(text(raw.tsr_trace_kernels(arguments.text("trace", given), o)))
