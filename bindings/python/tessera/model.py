"""Model: a forward graph, named parameter values, a tokenizer and metadata."""
from __future__ import annotations

import json
from typing import Any, Iterator, Sequence

from . import arguments, files, raw, reader
from .arguments import Options
from .chat import Chat
from .errors import NotFoundError, check, result, text
from .generator import Generator, Stream
from .graph import Graph
from .handle import Handle, use, use_optional
from .runtime import Runtime, chosen_runtime
from .scorer import Scores, score
from .tensor import Tensor, as_tensor
from .tokenizer import Tokenizer
from .work import Progress, interruptible, signals_arrive

#: Options of a text; the others are of the generator.
_TEXT_OPTIONS = ("max_tokens", "temperature", "top_k", "top_p", "seed", "echo", "special", "stop", "stop_ids")


class Model(Handle):
    """`tessera.load(path)`; Model(description) makes one without weights: "llama:L=2,C=64,H=4,KV=2,F=128,V=256,T=64".
    Any thread. Options: seed."""

    _free = raw.tsr_model_free

    def __init__(self, description: str, **options: Any):
        with Options(options) as o:
            self._pointer = self._made(raw.tsr_model_new(arguments.text("description", description, nul=False), o))

    @classmethod
    def load(cls, source: Any, *, progress: Progress | None = None, runtime: Runtime | None = None,
             **options: Any) -> Model:
        """Of a path (.tsr, GGUF, safetensors, a Hugging Face folder), of bytes, which are not copied, or of a binary file
        object. Options, for paths: verify."""
        if isinstance(source, (bytes, bytearray, memoryview)):
            return cls.load_bytes(source)
        if hasattr(source, "read"):
            return cls.load_reader(source)
        if progress is None and runtime is None and not options and not signals_arrive():
            return cls._own(raw.tsr_model_load(arguments.path("source", source)))
        return files.load_steps(source, lambda c: cls._own(raw.tsr_model_finish(c)), options, runtime, progress)

    @classmethod
    def load_bytes(cls, data: Any) -> Model:
        """Of a file's content in a buffer, which is not copied: it must not change, and is kept until nothing uses it."""
        reader.check_buffer(data)
        return cls._own(raw.tsr_raw_model_load_bytes(data))

    @classmethod
    def load_reader(cls, file: Any, size: int | None = None) -> Model:
        """Of a binary file object, with read and seek, as long as the model lives. What it raises is the cause of the
        IoError that comes out."""
        return cls._own(reader.load(file, size))

    @classmethod
    def from_graph(cls, graph: Graph, **options: Any) -> Model:
        """Of a graph of one's own, which is copied. Options: seed."""
        with use(graph, Graph, "graph") as g, Options(options) as o:
            return cls._own(raw.tsr_model_new_from_graph(g, o))

    def add_adapters(self, **options: Any) -> Model:
        """A model with low-rank adapters, which alone train; it computes what this one does. Options: rank, alpha, on,
        exclude, layers, ranks, alphas, rslora, dora, init, dropout, also."""
        with self._pointer as c, Options(options) as o:
            return Model._own(raw.tsr_model_add_adapters(c, o))

    def for_method(self, method: str, **adapters: Any) -> Model:
        """The model of a method of training, "full", "lora" or "qlora:TYPE", as `plan_methods` names them.
        adapters: options of add_adapters."""
        with self._pointer as c, Options(adapters) as o:
            return Model._own(raw.tsr_model_for_method(c, arguments.text("method", method, nul=False), o))

    def load_adapters(self, path: Any, **options: Any) -> Model:
        """A model with the adapters of PEFT's folder or a GGUF adapter."""
        with self._pointer as c, Options(options) as o:
            return Model._own(raw.tsr_model_load_adapters(c, arguments.path("path", path), o))

    def resize_tokens(self, rows: int = 0, *, tokens: Sequence[str] = (), **options: Any) -> Model:
        """A model with this many rows in its token table and head; 0: the table's, or the tokenizer's tokens where those are
        more. tokens: texts that its tokenizer gets first, as control tokens. Options: special, multiple, seed."""
        if tokens:
            options["tokens"] = json.dumps(list(tokens))
        with self._pointer as c, Options(options) as o:
            return Model._own(raw.tsr_model_resize_tokens(c, rows, o))

    def merge_adapters(self) -> Model:
        """A model without adapters that computes what this one does."""
        with self._pointer as c:
            return Model._own(raw.tsr_model_merge_adapters(c))

    def save(self, path: Any, *, progress: Progress | None = None, runtime: Runtime | None = None, **options: Any) -> None:
        """Writes a .tsr file, at once or not at all; the model must not be written to meanwhile. Options: those of `convert`."""
        file = arguments.path("path", path)
        with self._pointer as c, use_optional(runtime, Runtime, "runtime") as r:
            files.save_model(lambda o: raw.tsr_model_save(c, file, o),
                             lambda o: raw.tsr_conversion_begin_for_model(r, c, file, o), options, progress,
                             by_steps=runtime is not None)

    def quantize(self, path: Any, type: str, *, progress: Progress | None = None, runtime: Runtime | None = None,
                 **options: Any) -> dict[str, Any]:
        """Writes a .tsr file with weights in fewer bits; the model stays as it is. Options: those of `convert`."""
        runtime, file = chosen_runtime(runtime), arguments.path("path", path)
        with self._pointer as c, runtime._pointer as r, Options({"type": type, **options}) as o:
            if progress is None or type is None:
                return interruptible(lambda: json.loads(text(raw.tsr_model_quantize(r, c, file, o))), runtime.cancel)
            return files.conversion_steps(lambda: raw.tsr_conversion_begin_for_model(r, c, file, o), progress,
                                          runtime.cancel)["quantization"]

    def export(self, out: Any, *, progress: Progress | None = None, runtime: Runtime | None = None,
               **options: Any) -> dict[str, Any]:
        """For other projects; see tessera.export."""
        return files.export(self, out, progress=progress, runtime=runtime, **options)

    def info(self) -> dict[str, Any]:
        """Tensors, inputs, outputs, metadata, tokenizer, ops, file, adapters."""
        with self._pointer as c:
            return json.loads(text(raw.tsr_model_info(c)))

    def metadata(self, key: str) -> str | None:
        """The value of a key; None where there is none."""
        name = arguments.text("key", key, nul=False)
        with self._pointer as c:
            if result(raw.tsr_model_metadata(c, name, None)) == 0:
                return None
            return arguments.short_text(lambda found: raw.tsr_model_metadata(c, name, found))

    def set_metadata(self, key: str, value: str | None) -> None:
        """None removes it."""
        with self._pointer as c:
            check(raw.tsr_model_set_metadata(c, arguments.text("key", key, nul=False),
                                             arguments.text("value", value or "", nul=False)))

    def parameters(self) -> list[str]:
        """Names, in graph order."""
        with self._pointer as c:
            return [_parameter_name(c, i) for i in range(result(raw.tsr_model_parameter_count(c)))]

    def read(self, parameter: str) -> Tensor:
        """A view of a parameter's value that stays as it was when the model changes."""
        with self._pointer as c:
            return Tensor._own(raw.tsr_model_read(c, arguments.text("parameter", parameter, nul=False)))

    def write(self, parameter: str, value: Any) -> None:
        """Borrows the memory of a Tensor or a buffer, which must stay as it is."""
        self._forget_generators()
        with self._pointer as c, as_tensor("value", value)._pointer as t:
            check(raw.tsr_model_write(c, arguments.text("parameter", parameter, nul=False), t))

    def graph(self) -> Graph:
        """A copy."""
        with self._pointer as c:
            return Graph._own(raw.tsr_model_graph(c))

    @property
    def tokenizer(self) -> Tokenizer | None:
        """None where it has none; None removes it."""
        try:
            with self._pointer as c:
                return Tokenizer._own(raw.tsr_model_tokenizer(c))
        except NotFoundError:
            return None

    @tokenizer.setter
    def tokenizer(self, tokenizer: Tokenizer | None) -> None:
        self._forget_generators()
        with self._pointer as c, use_optional(tokenizer, Tokenizer, "tokenizer") as t:
            check(raw.tsr_model_set_tokenizer(c, t))

    # ---- what is wanted most

    # Runtime, options, and the generators made of them that have no text in progress.
    _generators: tuple[Runtime | None, str, list[Generator]] = None, "", []

    def generate(self, prompt: Any, *, runtime: Runtime | None = None, **options: Any) -> Stream:
        """Continues a str, or token ids: `for piece in model.generate("Once")`, `str(model.generate("Once"))`. The options of
        Generator; the generator is kept for the next text with the same devices, context, precision and so on."""
        of_text = {key: options.pop(key) for key in _TEXT_OPTIONS if key in options}
        runtime, key = chosen_runtime(runtime), str(sorted(options.items()))
        if self._generators[0] is not runtime or self._generators[1] != key:
            self._generators = runtime, key, []
        pool = self._generators[2]
        try:
            generator = pool.pop()
        except IndexError:
            generator = Generator(self, runtime=runtime, **options)
        return generator._generate(prompt, of_text, pool.append)

    def chat(self, messages: Sequence[dict[str, Any]] | str, *, runtime: Runtime | None = None, template: str | None = None,
             name: str | None = None, tools: Any = None, documents: Any = None, variables: Any = None,
             now: int | None = None, **options: Any) -> Stream:
        """The assistant's next message: `model.chat([{"role": "user", "content": "Hi"}], max_tokens=50)`. A str is what a
        user says. The options of generate, and those of Chat and Chat.render by name."""
        if isinstance(messages, str):
            messages = [{"role": "user", "content": messages}]
        with Chat(self, name=name, template=template) as chat:
            ids = chat.encode(messages, add_generation_prompt=1, tools=tools, documents=documents, variables=variables,
                              now=now)
        return self.generate(ids, runtime=runtime, **options)

    def score(self, texts: Sequence[Any], *, runtime: Runtime | None = None, **options: Any) -> list[Scores]:
        """How likely each token of texts of ids is; see Scorer."""
        return score(self, texts, runtime=runtime, **options)

    def _forget_generators(self) -> None:
        """Of values that are about to change."""
        self._generators = None, "", []

    def close(self) -> None:
        self._forget_generators()
        super().close()

    def __iter__(self) -> Iterator[str]:
        return iter(self.parameters())

    def __repr__(self) -> str:
        return "Model(closed)" if self.closed else f"Model({self.metadata('description') or self.info()['architecture']!r})"


def _parameter_name(c: int, number: int) -> str:
    return arguments.short_text(lambda found: raw.tsr_model_parameter_name(c, number, found))
