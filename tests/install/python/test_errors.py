"""Errors are the library's and the builtins that fit, with their texts whole."""
import pickle
import subprocess
import sys
import unittest

import tessera
from common import MODEL


class Errors(unittest.TestCase):
    def test_each_code_has_a_class_of_the_builtin_that_fits(self):
        wanted = {"InvalidArgumentError": ValueError, "NotFoundError": (FileNotFoundError, LookupError),
                  "CorruptError": ValueError, "UnsupportedError": NotImplementedError, "OutOfMemoryError": MemoryError,
                  "IoError": OSError, "CancelledError": Exception, "AbortedError": RuntimeError,
                  "FailedPreconditionError": RuntimeError, "TimedOutError": TimeoutError, "InternalError": RuntimeError,
                  "NotFiniteError": FloatingPointError, "ValuesLostError": RuntimeError, "BusyError": RuntimeError,
                  "ExistsError": FileExistsError, "ChangedError": OSError, "ForkedError": RuntimeError}
        codes = set()
        for name, builtins in wanted.items():
            kind = getattr(tessera, name)
            for builtin in builtins if isinstance(builtins, tuple) else (builtins,):
                with self.assertRaises(builtin) as caught:
                    raise kind("a: found b, wanted c")
            self.assertIsInstance(caught.exception, tessera.TesseraError)
            self.assertEqual(str(caught.exception), "a: found b, wanted c")
            again = pickle.loads(pickle.dumps(caught.exception))
            self.assertEqual((type(again), str(again), again.code), (kind, "a: found b, wanted c", kind.code))
            codes.add(kind.code)
        self.assertEqual(codes, set(tessera.Code) - {tessera.Code.OK})

    def test_errors_arrive_whole(self):
        with self.assertRaises(FileNotFoundError) as caught:
            tessera.load("/no/such/file")
        self.assertEqual(caught.exception.code, tessera.Code.NOT_FOUND)
        self.assertEqual(caught.exception.code_name, "not_found")
        self.assertEqual(str(caught.exception), "/no/such/file: cannot open: No such file or directory")
        with self.assertRaisesRegex(tessera.InvalidArgumentError, r"^generator: unknown option 'x+… \[5000 bytes\] …x+'; "
                                                                  "there are [a-z_, ]+"):
            tessera.Generator(tessera.load(MODEL), **{"x" * 5000: 1})

    def test_errors_carry_their_numbers(self):
        with self.assertRaises(MemoryError) as caught:
            tessera.Plan(tessera.load(MODEL), memory_limit="4KiB", devices="cpu:1")
        numbers = caught.exception.numbers
        self.assertEqual(numbers["limit_bytes"], 4 << 10)
        self.assertGreater(numbers["smallest_limit_bytes"], 4 << 10)
        self.assertEqual(numbers["needed_bytes"], numbers["smallest_limit_bytes"])
        self.assertIn(f"({numbers['smallest_limit_bytes']} bytes)", str(caught.exception))
        self.assertLessEqual(numbers.keys(), {"limit_bytes", "smallest_limit_bytes", "needed_bytes", "smallest_devices"})
        self.assertEqual(pickle.loads(pickle.dumps(caught.exception)).numbers, numbers)
        with self.assertRaises(tessera.TesseraError) as caught:
            tessera.load("/no/such/file")
        self.assertEqual(caught.exception.numbers, {})
        self.assertEqual(tessera.InvalidArgumentError("a").numbers, {})

    def test_options_are_checked(self):
        model = tessera.load(MODEL)
        with self.assertRaisesRegex(ValueError, "unknown option 'max_token'; nearest: max_tokens"):
            model.generate("a", max_token=3)
        with self.assertRaisesRegex(ValueError, "found a object, wanted an int"):
            tessera.Generator(model, context=object())
        with self.assertRaisesRegex(ValueError, "wanted an integer of 64 bits"):
            tessera.Generator(model, context=1 << 63)
        with self.assertRaisesRegex(ValueError, "option 'devices'.*NUL at byte 5"):
            tessera.Generator(model, devices="cpu:1\0")
        with self.assertRaisesRegex(ValueError, "key of an option.*NUL"):
            tessera.Generator(model, **{"context\0": 8})
        tessera.Generator(model, context=None, devices="cpu:1")

    def test_a_library_of_another_version_is_refused(self):
        from tessera import errors, raw
        with self.assertRaises(tessera.UnsupportedError):
            errors.check(raw.tsr_version_check(raw.TSR_VERSION + 10000))


    def test_the_package_does_not_load_with_such_a_library(self):
        code = ("import importlib.util, pathlib, sys\n"
                "folder = next(p for p in map(pathlib.Path, sys.path) if (p / 'tessera').is_dir()) / 'tessera'\n"
                "spec = importlib.util.spec_from_file_location('tessera._raw', next(folder.glob('_raw*.so')))\n"
                "module = importlib.util.module_from_spec(spec)\n"
                "spec.loader.exec_module(module)\n"
                "module.TSR_VERSION += 10000\n"
                "sys.modules['tessera._raw'] = module\n"
                "import tessera")
        found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        self.assertEqual(found.returncode, 1)
        self.assertRegex(found.stderr, r"\nImportError: libtessera: .*\d+\.\d+\.\d+.*\n$")

    def test_types_are_those_of_the_library(self):
        for dtype in tessera.DType:
            self.assertEqual(dtype, getattr(tessera.raw, "TSR_" + dtype.name.upper()))
            self.assertEqual(tessera.dtype_name(dtype), dtype.name)
        self.assertEqual(tessera.dtype_name(len(tessera.DType)), "unknown")


if __name__ == "__main__":
    unittest.main()
