"""Plan: how a model will be computed on some devices, in what time and how many bytes."""
from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Callable

from . import arguments, raw
from .arguments import Options
from .errors import check, text
from .graph import Graph
from .handle import Handle, Pointer, use, use_optional
from .runtime import Devices, Runtime, chosen_runtime
from .work import Progress, interruptible, run_work

if TYPE_CHECKING:
    from .dataset import Dataset
    from .model import Model


class Plan(Handle):
    """`Plan(model, devices="cpu:4", batch=8)`: the plan that a Trainer, or with mode="generate" a Generator, would make
    from these options. Immutable; any thread. Planning allocates none of the predicted memory. `progress` receives the
    completed fraction; an exception from it ends the planning."""

    _free = raw.tsr_plan_free

    def __init__(self, model: Model, *, progress: Progress | None = None, runtime: Runtime | None = None, **options: Any):
        from .model import Model
        runtime = chosen_runtime(runtime)
        with use(model, Model, "model") as m, runtime._pointer as r, Options(options) as o:
            if progress is None:
                self._pointer = interruptible(lambda: self._made(raw.tsr_plan_new(r, m, o)), runtime.cancel)
            else:
                self._pointer = self._planned(lambda: raw.tsr_plan_begin(r, m, o), progress)

    @classmethod
    def for_graph(cls, devices: Devices, graph: Graph, *, progress: Progress | None = None, **options: Any) -> Plan:
        """Of any graph. Options: batch, symbols, parallel, pins, memory_limit."""
        self = cls.__new__(cls)
        with use(devices, Devices, "devices") as d, use(graph, Graph, "graph") as g, Options(options) as o:
            if progress is None:
                self._pointer = interruptible(lambda: cls._made(raw.tsr_plan_new_for_graph(d, g, o)),
                                              devices._runtime.cancel)
            else:
                self._pointer = cls._planned(lambda: raw.tsr_plan_begin_for_graph(d, g, o), progress)
        return self

    @classmethod
    def _planned(cls, begin: Callable[[], tuple[Any, ...]], progress: Progress) -> Pointer:
        return run_work(begin, lambda c: cls._made(raw.tsr_plan_finish(c)), progress)

    @classmethod
    def parse_for_graph(cls, devices: Devices, graph: Graph, source: str) -> Plan:
        """The plan of this very graph from its text."""
        data = arguments.text("source", source)
        with use(devices, Devices, "devices") as d, use(graph, Graph, "graph") as g:
            return interruptible(lambda: cls._own(raw.tsr_plan_parse_for_graph(d, g, data)), devices._runtime.cancel)

    @classmethod
    def load_for_graph(cls, devices: Devices, graph: Graph, path: Any) -> Plan:
        """Likewise from its file."""
        file = arguments.path("path", path)
        with use(devices, Devices, "devices") as d, use(graph, Graph, "graph") as g:
            return interruptible(lambda: cls._own(raw.tsr_plan_load_for_graph(d, g, file)), devices._runtime.cancel)

    def __str__(self) -> str:
        """Text that can be edited and given back as option plan_file."""
        with self._pointer as c:
            return text(raw.tsr_plan_text(c))

    def info(self) -> dict[str, Any]:
        """Mesh, strategy, seconds of a step, bytes of each device, candidates."""
        with self._pointer as c:
            return json.loads(text(raw.tsr_plan_info(c)))

    def explain(self) -> dict[str, Any]:
        """Why it is as it is: time and memory by cause, what is sharded, what the runners-up lose."""
        with self._pointer as c:
            return json.loads(text(raw.tsr_plan_explain(c)))

    def page(self) -> str:
        """The same as one HTML page."""
        with self._pointer as c:
            return text(raw.tsr_plan_page(c))

    def trace(self) -> list[dict[str, Any]]:
        """What one run should do, in Chrome's trace format. Needs the option trace."""
        with self._pointer as c:
            return json.loads(text(raw.tsr_plan_trace(c)))

    def save(self, path: Any) -> None:
        with self._pointer as c:
            check(raw.tsr_plan_save(c, arguments.path("path", path)))


def plan_methods(model: Model, dataset: Dataset | None = None, *, adapters: dict[str, Any] | None = None,
                 runtime: Runtime | None = None, **options: Any) -> dict[str, Any]:
    """Methods that could train a model, the richest first, with their bytes, and the first that fits, for Model.for_method:
    `plan_methods(model, data, memory_limit="8GiB", adapters={"rank": 16})["method"]`. Options: those of Trainer, and
    method; adapters: those of Model.add_adapters."""
    from .dataset import Dataset
    from .model import Model
    runtime = chosen_runtime(runtime)
    with (use(model, Model, "model") as m, use_optional(dataset, Dataset, "dataset") as d, runtime._pointer as r,
          Options(options) as o, Options(adapters or {}) as a):
        return json.loads(text(interruptible(lambda: raw.tsr_plan_methods(r, m, d, o, a), runtime.cancel)))


def plan_jointly(model: Model, dataset: Dataset | None = None, *, trainer: dict[str, Any] | None = None,
                 engine: dict[str, Any] | None = None, runtime: Runtime | None = None, **options: Any) -> dict[str, Any]:
    """The memory of a trainer and of engines over one model, together, before anything is allocated. trainer, engine: options of
    these. Options: engines (their number), weights ("trainer": those that it trains; "model"), memory_limit of all together."""
    from .dataset import Dataset
    from .model import Model
    runtime = chosen_runtime(runtime)
    with (use(model, Model, "model") as m, use_optional(dataset, Dataset, "dataset") as d, runtime._pointer as r,
          Options(trainer or {}) as t, Options(engine or {}) as e, Options(options) as o):
        return json.loads(text(interruptible(lambda: raw.tsr_plan_jointly(r, m, d, t, e, o), runtime.cancel)))


def memory_needs(model: Model, *, runtime: Runtime | None = None, **options: Any) -> dict[str, Any]:
    """The bytes on each device to generate a text ("inference"), to train adapters ("lora") and to train all parameters ("full").
    Options: devices and what else places a Trainer, context, seq, batch, rank."""
    from .model import Model
    runtime = chosen_runtime(runtime)
    with use(model, Model, "model") as m, runtime._pointer as r, Options(options) as o:
        return json.loads(text(interruptible(lambda: raw.tsr_model_needs(r, m, o), runtime.cancel)))


def estimate(description: str, **options: Any) -> dict[str, Any]:
    """What one training step, or serving, of "llama:L=..." takes on a cluster that need not be present. Options: cluster
    (required), batch, parallel, memory_limit, certificate, within, lora, base, precision, and with mode="generate" more."""
    with Options(options) as o:
        return json.loads(text(raw.tsr_plan_estimate(arguments.text("description", description, nul=False), o)))


def estimate_page(description: str, **options: Any) -> str:
    """The same explained, as an HTML page."""
    with Options(options) as o:
        return text(raw.tsr_plan_estimate_page(arguments.text("description", description, nul=False), o))


def check_certificate(certificate: str | dict[str, Any]) -> dict[str, Any]:
    """Whether a certificate of `estimate` holds; CorruptError names the first claim that does not."""
    source = json.dumps(certificate) if isinstance(certificate, dict) else certificate
    return json.loads(text(raw.tsr_plan_check(arguments.text("certificate", source, nul=False))))
