"""Memory: buffers cross both ways without a copy, are kept as long as they are used, and refused with what was found."""
import array
import gc
import io
import os
import threading
import unittest
import weakref

import tessera
from common import MODEL, dataset

try:
    import numpy
except ImportError:
    numpy = None


class Kept(bytearray):
    """A buffer whose end can be seen."""


class Producer:
    """What has DLPack, and no buffer."""

    def __init__(self, capsule):
        self._capsule = capsule

    def __dlpack__(self, *, max_version=None):
        return self._capsule


class Memory(unittest.TestCase):
    def test_a_tensor_is_a_buffer(self):
        tensor = tessera.Tensor.zeros("f32", [2, 3])
        view = memoryview(tensor)
        self.assertEqual((view.shape, view.strides, view.format, view.readonly), ((2, 3), (12, 4), "f", False))
        view[1, 2] = 5
        self.assertEqual(tensor.tolist(), [[0, 0, 0], [0, 0, 5]])
        tensor.close()  # the view keeps the memory
        self.assertEqual(view.tolist(), [[0, 0, 0], [0, 0, 5]])
        for dtype, numbers in (("f64", [1.5]), ("f16", [[0.5], [2]]), ("i32", -7), ("i64", [1 << 40]), ("i8", [-1]),
                               ("u8", [255, 0])):
            self.assertEqual(tessera.Tensor.of(numbers, dtype).tolist(), numbers)
        self.assertEqual(tessera.Tensor.zeros("f32", [3, 0]).tolist(), [[], [], []])
        bf16 = tessera.Tensor(array.array("H", [0x3F80, 0xC000]), "bf16")
        self.assertEqual((bf16.dtype.name, bf16.tolist()), ("bf16", [1, -2]))
        self.assertEqual(tessera.Tensor(bytes(36), "q4_0", [64]).shape, (64,))
        self.assertEqual(tessera.dtype_name(tessera.DType.q4_k), "q4_k")

    def test_tensors_view_buffers_and_let_them_go(self):
        data = Kept(b"\0\0\x80\x3f" * 6)
        alive = weakref.ref(data)
        tensor = tessera.Tensor(data, "f32", [2, 3])
        self.assertTrue(tensor.readonly)
        with self.assertRaises(BufferError):
            data.extend(b"more")  # it is lent
        data[0:4] = b"\0\0\0\x40"
        self.assertEqual(tensor.tolist(), [[2, 1, 1], [1, 1, 1]])
        view = memoryview(tensor)
        self.assertTrue(view.readonly)
        del data, tensor
        gc.collect()
        self.assertIsNotNone(alive())
        del view
        gc.collect()
        self.assertIsNone(alive())

    def test_models_borrow_what_is_written(self):
        model = tessera.load(MODEL)
        name = next(iter(model))
        values = array.array("f", range(256 * 32))
        data = Kept(values.tobytes())
        alive = weakref.ref(data)
        model.write(name, tessera.Tensor(data, "f32", [256, 32]))
        del data
        gc.collect()
        self.assertIsNotNone(alive())
        self.assertEqual(bytes(model.read(name)), values.tobytes())
        model.close()
        del model
        gc.collect()
        self.assertIsNone(alive())

    def test_loans_end_on_any_thread(self):
        held = [tessera.Tensor(bytearray(64)) for _ in range(1000)]
        threads = [threading.Thread(target=part.clear) for part in (held[:500], held[500:])]
        del held
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def test_wrong_buffers_are_refused(self):
        model = tessera.load(MODEL)
        tokenizer = model.tokenizer
        self.assertEqual(tokenizer.decode(array.array("i", [65, 66])), "AB")
        self.assertEqual(tokenizer.decode(memoryview(array.array("i", [65, 66]))), "AB")
        for values, text in ((array.array("q", [65]), r"ids: found a buffer of int64 \[1\], wanted int32"),
                             (b"AB", r"ids: found a buffer of uint8 \[2\], wanted int32"),
                             (memoryview(array.array("i", range(8)))[::2], "wanted C-contiguous int32"),
                             ([1 << 31], "wanted numbers of int32"), (["a"], "wanted numbers of int32"),
                             (3, "wanted numbers of int32")):
            with self.assertRaisesRegex(tessera.InvalidArgumentError, text):
                tokenizer.decode(values)
        for values, dtype, shape, text in (
                (array.array("h", [1]), None, None, r"found a buffer of int16 \[1\], wanted float32"),
                (array.array("d", [1]), "f32", None, r"found a buffer of float64 \[1\], wanted f32"),
                (memoryview(bytes(8))[::2], None, None, "wanted C-contiguous"), ([1.0], None, None, "Tensor.of"),
                (bytes(8), "f32", None, "shape: found none"), (bytes(8), "f33", [2], "dtype: found 'f33'"),
                (bytes(8), "f32", [3], "bytes"), (bytes(8), "f32", [-1], "-1"), (bytes(1), "u8", [1] * 7, "rank")):
            with self.assertRaisesRegex(tessera.InvalidArgumentError, text):
                tessera.Tensor(values, dtype, shape)
        with self.assertRaises((tessera.TesseraError, MemoryError)):
            tessera.Tensor.zeros("f32", [1 << 62, 4])
        with self.assertRaisesRegex(ValueError, "wanted the same in each"):
            tessera.Tensor.of([[1], [1, 2]], "f32")

    def test_dlpack_crosses_both_ways(self):
        tensor = tessera.Tensor.of([[1, 2], [3, 4]], "f32")
        self.assertEqual(tensor.__dlpack_device__(), (1, 0))
        for version in (None, (1, 0)):
            taken = tessera.Tensor(Producer(tensor.__dlpack__(max_version=version)))
            self.assertEqual((taken.dtype, taken.tolist()), (tensor.dtype, tensor.tolist()))
        memoryview(tensor)[0, 0] = 9
        self.assertEqual(taken.tolist()[0], [9, 2])
        del tensor
        gc.collect()
        self.assertEqual(taken.tolist(), [[9, 2], [3, 4]])
        capsule = taken.__dlpack__()  # read-only: of the old form a copy
        with self.assertRaises(BufferError):
            taken.__dlpack__(copy=False)
        del capsule
        with self.assertRaises(BufferError):
            tessera.raw.tsr_raw_tensor_from_dlpack(object())
        used = Producer(taken.__dlpack__())
        tessera.Tensor(used)
        with self.assertRaisesRegex(tessera.InvalidArgumentError, "values: .*taken already"):
            tessera.Tensor(used)
        with self.assertRaises(BufferError):
            tessera.Tensor(bytes(36), "q4_0", [64]).__dlpack__()

    @unittest.skipIf(numpy is None, "NumPy is not there")
    def test_numpy_sees_the_memory(self):
        tensor = tessera.Tensor.zeros("f32", [2, 3])
        seen = numpy.asarray(tensor)
        seen[1] = 4
        self.assertEqual(tensor.tolist(), [[0, 0, 0], [4, 4, 4]])
        numpy.from_dlpack(tensor)[0, 0] = 3
        self.assertEqual(seen[0, 0], 3)
        self.assertEqual(tessera.Tensor(numpy.arange(6).reshape(2, 3)).tolist(), [[0, 1, 2], [3, 4, 5]])
        with self.assertRaisesRegex(ValueError, "wanted C-contiguous"):
            tessera.Tensor(numpy.zeros((2, 3), "f4").T)
        model = tessera.load(MODEL)
        self.assertEqual(model.tokenizer.decode(numpy.array([65, 66], "i4")), "AB")
        with self.assertRaisesRegex(ValueError, r"found a buffer of int64 \[2\], wanted int32"):
            model.tokenizer.decode(numpy.array([65, 66]))
        self.assertEqual(model.read(next(iter(model))).numpy().shape, (256, 32))
        text = str(model.generate("A", max_tokens=4, temperature=0))
        self.assertEqual(str(model.generate("A", max_tokens=numpy.int32(4), temperature=numpy.float32(0),
                                            echo=numpy.bool_(False))), text)
        with self.assertRaisesRegex(ValueError, "option 'max_tokens': found a ndarray"):
            model.generate("A", max_tokens=numpy.arange(3))

    def test_models_come_out_of_memory_and_files(self):
        wanted = tessera.load(MODEL).info()["tensors"]
        with open(MODEL, "rb") as file:
            content = Kept(file.read())
            self.assertEqual(tessera.load(file).info()["tensors"], wanted)
        model = tessera.load(io.BytesIO(content))
        text = str(model.generate("A", max_tokens=4, temperature=0))
        alive = weakref.ref(content)
        model = tessera.Model.load_bytes(content)
        del content
        gc.collect()
        self.assertIsNotNone(alive())
        self.assertEqual(str(model.generate("A", max_tokens=4, temperature=0)), text)
        model.close()
        del model
        gc.collect()
        self.assertIsNone(alive())
        with self.assertRaises(tessera.CorruptError):
            tessera.load(b"TSR")
        with self.assertRaisesRegex(ValueError, "text file"):
            tessera.load(io.StringIO("text"))

    def test_what_a_file_raises_is_the_cause(self):
        class Broken(io.BytesIO):
            def read(self, size=-1):
                raise ZeroDivisionError("broken")

        with self.assertRaises(tessera.IoError) as caught:
            tessera.load(Broken(bytes(100)))
        self.assertIsInstance(caught.exception, OSError)
        self.assertIsInstance(caught.exception.__cause__, ZeroDivisionError)
        with self.assertRaises(tessera.IoError) as caught:
            with open(MODEL, "rb") as file:
                tessera.Model.load_reader(io.BytesIO(file.read(1000)), os.path.getsize(MODEL))
        self.assertIsInstance(caught.exception.__cause__, EOFError)

    def test_own_inputs_are_fed_from_buffers(self):
        graph = tessera.Graph.parse("graph {\n symbol B\n input x: f32[B, 2]\n input loss_scale: f32[]\n"
                                    " parameter w: f32[2, 1]\n y = matmul(x, w) : f32[B, 1]\n"
                                    " s = reduce_sum(y) {axes = [0, 1]} : f32[]\n l = scale_by(s, loss_scale) : f32[]\n"
                                    " output loss = l\n}")
        model = tessera.Model.from_graph(graph)
        with tessera.Trainer(model, devices="cpu:1", batch=2) as trainer:
            trainer.feed("x", memoryview(array.array("f", [1, 2, 3, 4])).cast("B").cast("f", (2, 2)))
            loss = trainer.step().loss
            w = model.read("w").tolist()
            self.assertAlmostEqual(loss, (4 * w[0][0] + 6 * w[1][0]) / 2, 5)
            with self.assertRaisesRegex(ValueError, "x"):
                trainer.feed("x", array.array("d", [1, 2, 3, 4]))
            trainer.write("w", tessera.Tensor.of([[1], [2]], "f32"))
            self.assertEqual(trainer.read("w").tolist(), [[1], [2]])

    def test_datasets_of_ids(self):
        data = tessera.Dataset.from_tokens(range(100), seq=4, shuffle=False)
        self.assertEqual(data.batch(0, 2).tolist(), [[0, 1, 2, 3, 4], [4, 5, 6, 7, 8]])
        self.assertEqual(data.info()["train_samples"], tessera.Dataset.from_tokens(
            array.array("i", range(100)), seq=4).info()["train_samples"])
        self.assertEqual(dataset(tessera.load(MODEL)).info()["seq"], 32)


if __name__ == "__main__":
    unittest.main()
