"""Whatever is passed, calls raise exceptions: each method of each class with values that it does not want."""
import array
import inspect
import unittest

import tessera
from common import MODEL, dataset

VALUES = [None, -1, 1 << 70, 3.5, float("nan"), "", "a\0b", "\ud800", b"\xff\0", object(), [], {}, [None], ["a"], [-1],
          {"a": 1}, array.array("d", [1]), memoryview(bytes(12))[::3], lambda *_: 1 / 0, int]


def methods(thing):
    for name in dir(type(thing)):
        if not name.startswith("_") and name != "close" and callable(getattr(type(thing), name)):
            yield name, getattr(thing, name)


class Hostile(unittest.TestCase):
    def call(self, function, *arguments, **options):
        """Calls it; what comes out is a result or an exception of the language."""
        try:
            found = function(*arguments, **options)
        except (tessera.TesseraError, TypeError, ValueError, OverflowError, ArithmeticError, LookupError, BufferError,
                AttributeError, OSError, MemoryError) as error:
            self.assertNotIsInstance(error, tessera.InternalError)
            return
        if isinstance(found, tessera.Stream):
            found.close()

    def test_every_method_survives_every_value(self):
        model = tessera.load(MODEL)
        graph = tessera.Graph.parse("graph {\n symbol B\n input x: f32[B, 2]\n y = tanh(x) : f32[B, 2]\n output y = y\n}")
        devices = tessera.Devices("cpu:1")
        plan = tessera.Plan.for_graph(devices, graph)
        program = tessera.Program(devices, {"run": (graph, plan)})
        data = dataset(model)
        engine = tessera.Engine(model, context=8, max_tokens=2)
        kept = engine.submit("a", keep=1)
        kept.text()
        things = [tessera.Runtime(), devices, model, model.tokenizer, graph, plan, program, tessera.Session(program), data,
                  tessera.Tensor.zeros("f32", [2]), tessera.Trainer(model, data, batch=1), tessera.Generator(model, context=8),
                  engine, engine.submit("a"), kept.sequence(),
                  tessera.Scorer(model, seq=8), tessera.Embedder(model, seq=8),
                  tessera.Chat(model, template="{{ messages }}")]
        closed = tessera.load(MODEL)
        closed.close()
        for thing in things:
            for name, function in methods(thing):
                try:
                    wanted = [p for p in inspect.signature(function).parameters.values()
                              if p.kind is p.POSITIONAL_OR_KEYWORD and p.default is p.empty]
                except ValueError:
                    continue
                if not wanted:
                    continue
                for value in [*VALUES, closed, thing]:
                    self.call(function, *[value] * len(wanted))
        self.assertEqual(things[2].parameters(), tessera.load(MODEL).parameters())

    def test_every_function_survives_every_value(self):
        for function in (tessera.load, tessera.Tensor, tessera.Tensor.zeros, tessera.Graph.parse, tessera.Tokenizer,
                         tessera.Trainer, tessera.Generator, tessera.Engine, tessera.Plan, tessera.Model,
                         tessera.Model.load_bytes, tessera.Model.load_reader, tessera.Model.from_graph,
                         tessera.Dataset.from_tokens, tessera.Devices, tessera.check_path, tessera.verify,
                         tessera.check_folder, tessera.checkpoint_info, tessera.estimate, tessera.estimate_page,
                         tessera.check_certificate, tessera.dtype_name, tessera.Chat.from_text):
            for value in VALUES:
                self.call(function, value)
        for function in (tessera.Tensor, tessera.Tensor.zeros, tessera.Tensor.of, tessera.Program, tessera.score,
                         tessera.Dataset, tessera.convert, tessera.Plan.for_graph, tessera.finetune, tessera.Session):
            for value in VALUES:
                for other in VALUES:
                    self.call(function, value, other)
        for value in VALUES:
            self.call(tessera.Runtime, log_level=value)
            self.call(tessera.Generator, tessera.load(MODEL), devices=value)

    def test_raw_calls_survive_what_is_no_pointer(self):
        raw = tessera.raw
        for name in dir(raw):
            function = getattr(raw, name)
            if not name.startswith("tsr_") or not callable(function) or name == "tsr_raw_shutdown":
                continue
            for value in ("x", 1.5, [], object()):
                for count in range(5):
                    self.call(function, *[value] * count)


if __name__ == "__main__":
    unittest.main()
