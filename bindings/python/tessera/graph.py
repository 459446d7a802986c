"""Graph: a model as ops, built node by node or read from text."""
from __future__ import annotations

import array
import json
from typing import Any, Iterable, NamedTuple

from . import arguments, raw
from .arguments import Options
from .dtype import DType, dtype_of
from .errors import check, result, text
from .handle import Handle


class Type(NamedTuple):
    dtype: DType
    shape: tuple[int, ...]  # symbols are negative, as Graph.symbol returned them


class Graph(Handle):
    """A graph of ops. Values are ints, of this graph alone. One thread at a time.

        graph = Graph()
        batch = graph.symbol("B")
        x = graph.input("x", "f32", [batch, 64])
        w = graph.parameter("w", "f32", [64, 10])
        graph.output("logits", graph.node("matmul", x, w))"""

    _free = raw.tsr_graph_free
    _exclusive = True

    def __init__(self) -> None:
        self._pointer = self._made(raw.tsr_graph_new())

    @classmethod
    def parse(cls, source: str) -> Graph:
        """Of the text form."""
        return cls._own(raw.tsr_graph_parse(arguments.text("source", source)))

    def __str__(self) -> str:
        """The text form, exact both ways."""
        with self._pointer as c:
            return text(raw.tsr_graph_print(c))

    def symbol(self, name: str, capacity: int = 0) -> int:
        """The extent that stands for a symbol, declared or found again. capacity: its largest value, 0 for no limit."""
        with self._pointer as c:
            return result(raw.tsr_graph_symbol(c, arguments.text("name", name, nul=False), capacity))

    def input(self, name: str, dtype: str | int, shape: Iterable[int] = ()) -> int:
        """Declares an input. Names are unique in the graph; extents may be symbols."""
        with self._pointer as c:
            return result(raw.tsr_graph_input(c, arguments.text("name", name, nul=False), dtype_of(dtype),
                                              arguments.dims("shape", list(shape))))

    def parameter(self, name: str, dtype: str | int, shape: Iterable[int]) -> int:
        """Declares a parameter, which trains unless it is frozen."""
        with self._pointer as c:
            return result(raw.tsr_graph_parameter(c, arguments.text("name", name, nul=False), dtype_of(dtype),
                                                  arguments.dims("shape", list(shape))))

    def nodes(self, op: str, *inputs: int, **attributes: Any) -> tuple[int, ...]:
        """Adds a node; all its results."""
        outputs = array.array("I", bytes(4 * 16))
        with self._pointer as c, Options(attributes) as o:
            count = result(raw.tsr_graph_node(c, arguments.text("op", op, nul=False),
                                              arguments.items("inputs", "I", "uint32", list(inputs)), o, outputs))
        return tuple(outputs[:count])

    def node(self, op: str, *inputs: int, **attributes: Any) -> int:
        """Adds a node; its first result."""
        return self.nodes(op, *inputs, **attributes)[0]

    def scope(self, name: str) -> None:
        """Scope of the nodes added from here on: "block.0.attention"."""
        with self._pointer as c:
            check(raw.tsr_graph_scope(c, arguments.text("name", name, nul=False)))

    def rename(self, value: int, name: str) -> None:
        """Gives a value another name."""
        with self._pointer as c:
            check(raw.tsr_graph_rename(c, value, arguments.text("name", name, nul=False)))

    def set_trainable(self, parameter: int, trainable: bool) -> None:
        """A frozen parameter gets no gradient, no optimizer state and no memory for either."""
        with self._pointer as c:
            check(raw.tsr_graph_set_trainable(c, parameter, int(trainable)))

    def output(self, name: str, value: int) -> None:
        """Makes a value fetchable; replaces an output of that name."""
        with self._pointer as c:
            check(raw.tsr_graph_output(c, arguments.text("name", name, nul=False), value))

    def find(self, name: str) -> int:
        """The value of a name."""
        with self._pointer as c:
            return result(raw.tsr_graph_find(c, arguments.text("name", name, nul=False)))

    def type(self, value: int) -> Type:
        """Element type and extents of a value."""
        extents = array.array("q", bytes(8 * raw.TSR_MAX_RANK))
        with self._pointer as c:
            dtype, rank = result(raw.tsr_graph_type(c, value, extents))
        return Type(DType(dtype), tuple(extents[:rank]))

    def token_loss(self) -> Graph:
        """With inputs "labels" and "loss_scale" and the output "loss", of a graph with the output "logits"."""
        with self._pointer as c:
            return Graph._own(raw.tsr_graph_token_loss(c))

    def segments(self) -> Graph:
        """With the input "segments": attention sees tokens with the same number alone."""
        with self._pointer as c:
            return Graph._own(raw.tsr_graph_segments(c))

    def training(self, **options: Any) -> Graph:
        """The whole step: forward, backward, optimizer. Options: those of the optimizer, as for Trainer."""
        with self._pointer as c, Options(options) as o:
            return Graph._own(raw.tsr_graph_training(c, o))

    def evaluation(self) -> Graph:
        """The output "loss" alone."""
        with self._pointer as c:
            return Graph._own(raw.tsr_graph_evaluation(c))

    def decoding(self, **options: Any) -> Graph:
        """One step of a language model over sequences whose keys and values are in pages. Options: context (required), rows,
        page_size, pages, sample."""
        with self._pointer as c, Options(options) as o:
            return Graph._own(raw.tsr_graph_decoding(c, o))

    def profile(self, **options: Any) -> dict[str, Any]:
        """What it computes, reads, writes and keeps. Options: batch, symbols, nodes."""
        with self._pointer as c, Options(options) as o:
            return json.loads(text(raw.tsr_graph_profile(c, o)))
