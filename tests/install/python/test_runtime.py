"""Runtimes: a function of Python hears the log, and hooks bring memory and are told of threads."""
import contextlib
import ctypes
import gc
import logging
import mmap
import os
import signal
import sys
import threading
import time
import unittest
import weakref

import tessera
from common import MODEL, OPTIONS, dataset, folder, wait_for


@contextlib.contextmanager
def unraisable():
    """The exceptions that callbacks end with."""
    found, hook = [], sys.unraisablehook
    sys.unraisablehook = lambda it: found.append(it.exc_type)
    try:
        yield found
    finally:
        sys.unraisablehook = hook


class Log(unittest.TestCase):
    def setUp(self):
        # A profile of the cache folder that is damaged is a warning whenever devices are opened.
        place = folder()
        self.addCleanup(place.cleanup)
        os.mkdir(os.path.join(place.name, "tessera"))
        with open(os.path.join(place.name, "tessera", "profile-cpu.json"), "w", encoding="ascii") as file:
            file.write("no profile")
        before = os.environ.get("XDG_CACHE_HOME")
        os.environ["XDG_CACHE_HOME"] = place.name
        try:
            self.runtime = tessera.Runtime(profile="auto")
        finally:
            del os.environ["XDG_CACHE_HOME"]
            if before is not None:
                os.environ["XDG_CACHE_HOME"] = before

    def warn(self):
        self.runtime.devices("cpu:1").close()

    def test_a_function_hears_the_log_besides_the_queue(self):
        heard = []
        self.runtime.set_log(lambda level, text: heard.append((level, text)))
        self.warn()
        self.assertEqual(len(heard), 1)
        self.assertIs(heard[0][0], tessera.LogLevel.WARNING)
        self.assertIn("profile-cpu.json", heard[0][1])
        self.assertEqual(list(self.runtime.log()), heard)
        thread = threading.Thread(target=self.warn)
        thread.start()
        thread.join()
        self.assertEqual(len(heard), 2)
        self.runtime.set_log(None)
        self.runtime.set_log(None)
        self.warn()
        self.assertEqual(len(heard), 2)
        for wrong in (5, "log", [print]):
            with self.assertRaisesRegex(tessera.InvalidArgumentError, "log: found .*, wanted a function, a logging.Logger"):
                self.runtime.set_log(wrong)

    def test_a_logger_hears_it_with_its_levels(self):
        logger = logging.getLogger("tessera.check")
        for each in (logger, logging.LoggerAdapter(logger, {})):
            self.runtime.set_log(each)
            with self.assertLogs(logger, "WARNING") as found:
                self.warn()
            self.assertEqual([record.levelno for record in found.records], [logging.WARNING])
            self.assertIn("profile-cpu.json", found.records[0].getMessage())

    def test_what_it_raises_does_no_harm(self):
        with unraisable() as found:
            self.runtime.set_log(lambda level, text: 1 / 0)
            self.warn()
            self.runtime.set_log(lambda: None)
            self.warn()
            self.runtime.set_log(lambda level, text: self.runtime.set_log(None))  # it is in use
            self.warn()
        self.assertEqual(found, [ZeroDivisionError, TypeError, tessera.BusyError])
        heard = []
        self.runtime.set_log(lambda level, text: heard.append(self.runtime.backends()))
        self.warn()
        self.assertEqual(heard, [self.runtime.backends()])

    def test_ctrl_c_within_it_comes_out_of_the_call(self):
        def log(level, text):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(30)

        handler = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            self.runtime.set_log(log)
            with unraisable() as found, self.assertRaises(KeyboardInterrupt):
                self.warn()
                time.sleep(30)
            self.assertEqual(found, [])
        finally:
            signal.signal(signal.SIGINT, handler)

    def test_it_is_let_go(self):
        def function():
            def log(level, text):
                pass
            self.runtime.set_log(log)
            return weakref.ref(log)

        first = function()
        self.assertIsNotNone(first())
        second = function()
        wait_for(lambda: first() is None, "the function is replaced")
        self.runtime.set_log(None)
        wait_for(lambda: second() is None, "the function is taken away")
        third = function()
        devices = self.runtime.devices("cpu:1")
        self.runtime.close()
        with self.assertRaisesRegex(tessera.InvalidArgumentError, "the runtime is closed"):
            self.runtime.set_log(print)
        gc.collect()
        self.assertIsNotNone(third())  # devices keep what they need of it
        devices.close()
        wait_for(lambda: third() is None, "the runtime is closed")
        self.setUp()
        fourth = function()
        self.runtime = None
        wait_for(lambda: fourth() is None, "the runtime is garbage")
        # One that refers to the runtime ends with its close.
        self.setUp()

        class Program:
            def __init__(self, runtime):
                self.runtime = runtime
                runtime.set_log(self.log)

            def log(self, level, text):
                pass

        program = weakref.ref(Program(self.runtime))
        self.assertIsNotNone(program())
        self.runtime.close()
        gc.collect()
        wait_for(lambda: program() is None, "the runtime is closed")

    def test_other_threads_replace_it_and_close_the_runtime_meanwhile(self):
        runtime, heard = self.runtime, []

        def warns():
            try:
                while True:
                    runtime.devices("cpu:1")
            except tessera.InvalidArgumentError:
                pass

        def replaces():
            try:
                for i in range(1 << 30):
                    runtime.set_log([heard.append, print, None][i % 3] and (lambda level, text: heard.append(text)))
            except tessera.InvalidArgumentError:
                pass

        threads = [threading.Thread(target=run) for run in (warns, warns, replaces)]
        for thread in threads:
            thread.start()
        wait_for(lambda: len(heard) > 200, "records are heard")
        runtime.close()
        for thread in threads:
            thread.join()

    def test_garbage_of_a_callback_is_freed_after_it(self):
        pool, seen = Pool(), []
        with tessera.Runtime(hooks=pool) as runtime:
            held = [tessera.Generator(tessera.load(MODEL), runtime=runtime)]
            wanted = len(pool.held)

            def log(level, text):
                held.clear()
                seen.append(len(pool.held))

            self.runtime.set_log(log)
            self.warn()
            self.assertEqual(seen, [wanted])
            self.assertGreater(wanted, 0)
            wait_for(lambda: not pool.held, "the generator is freed")


class Pool:
    """Memory of the program's own, accounted, and the threads that start."""

    def __init__(self):
        self.held, self.most, self.threads, self.refuses = {}, 0, {}, False
        self._lock = threading.Lock()

    def allocate(self, size, alignment):
        if self.refuses:
            return None
        memory = mmap.mmap(-1, size)
        address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        assert address % alignment == 0
        with self._lock:
            self.held[address] = memory
            self.most = max(self.most, sum(map(len, self.held.values())))
        return address

    def deallocate(self, address, size):
        with self._lock:
            assert len(self.held.pop(address)) >= size

    def thread_started(self, role, number):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        with self._lock:
            self.threads[role, number] = threading.get_native_id()


class Hooks(unittest.TestCase):
    def losses(self, runtime):
        model = tessera.load(MODEL)
        with tessera.Trainer(model, dataset(model), runtime=runtime, parallel="dp=2", **OPTIONS) as trainer:
            return [step.loss for step in trainer.steps(3)], str(model.generate("A", runtime=runtime, max_tokens=4, temperature=0))

    def test_arenas_lie_in_memory_of_the_programs(self):
        pool = Pool()
        with unraisable() as found:
            runtime = tessera.Runtime(hooks=pool, threads=2)
            self.assertEqual(self.losses(runtime), self.losses(None))
            self.assertGreater(pool.most, 2 * 4 * 34976)  # parameters and more on both devices
            gc.collect()
            self.assertEqual(pool.held, {})
            pool.refuses = True
            with self.assertRaisesRegex(MemoryError, "the program's allocator has no"):
                tessera.Generator(tessera.load(MODEL), runtime=runtime)
        self.assertEqual(found, [])
        alive = weakref.ref(pool)
        del pool
        self.assertIsNotNone(alive())
        runtime.close()
        wait_for(lambda: alive() is None, "the runtime is closed")

    def test_threads_that_start_can_be_pinned(self):
        pool = Pool()
        with tessera.Runtime(hooks=tessera.Hooks(thread_started=pool.thread_started), threads=2) as runtime:
            model = tessera.load(MODEL)
            data = dataset(model, runtime=runtime)
            with tessera.Trainer(model, data, runtime=runtime, parallel="dp=2", **OPTIONS) as trainer:
                trainer.step()
                with tessera.Generator(model, runtime=runtime) as generator:
                    str(generator.generate("A", max_tokens=2))
                    self.assertLessEqual({("kernels", 1), ("rank", 1), ("generator", 0)}, pool.threads.keys())
                    self.assertNotIn(threading.get_native_id(), pool.threads.values())
                    self.assertEqual(os.sched_getaffinity(pool.threads["kernels", 1]), {min(os.sched_getaffinity(0))})

    def test_subclasses_bring_methods(self):
        class Named(tessera.Hooks):
            def thread_started(self, role, number):
                started.append((role, number))

        started = []
        with tessera.Runtime(hooks=Named(), threads=2):
            wait_for(lambda: started == [("kernels", 1)], "a thread of the pool")
        self.assertEqual(tessera.Hooks(print), tessera.Hooks(allocate=print))
        self.assertIn("thread_started=None", repr(tessera.Hooks()))

    def test_bad_hooks_are_refused(self):
        for hooks, text in ((5, "hooks: found int, wanted an object with allocate"),
                            (tessera.Hooks(thread_started=5), "hooks.thread_started: found int, wanted a function"),
                            (tessera.Hooks(allocate=print), "one of allocate and deallocate")):
            with self.assertRaisesRegex(tessera.InvalidArgumentError, text):
                tessera.Runtime(hooks=hooks)
        with self.assertRaisesRegex(tessera.InvalidArgumentError, "unknown option 'thread'"):
            tessera.Runtime(hooks=tessera.Hooks(), thread=2)
        tessera.Runtime(hooks=tessera.Hooks()).close()
        back = []
        model = tessera.load(MODEL)
        for allocate, error, raised in ((lambda size, alignment: 1 / 0, MemoryError, [ZeroDivisionError]),
                                        (lambda size, alignment: "0", MemoryError, [TypeError]),
                                        (lambda size, alignment: -4096, MemoryError, [OverflowError]),
                                        (lambda size, alignment: 1 << 64, MemoryError, [OverflowError]),
                                        (lambda size, alignment: 0, MemoryError, []),
                                        (lambda size, alignment: 24, ValueError, [])):
            with tessera.Runtime(hooks=tessera.Hooks(allocate, lambda address, size: back.append(address))) as runtime:
                with unraisable() as found, self.assertRaises(error):
                    tessera.Generator(model, runtime=runtime)
                self.assertEqual(set(found), set(raised))
        self.assertEqual(set(back), {24})  # what is not aligned is given back


if __name__ == "__main__":
    unittest.main()
