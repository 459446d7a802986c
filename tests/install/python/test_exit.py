"""The interpreter ends cleanly, whatever is alive or in progress."""
import subprocess
import sys
import unittest

BEGIN = """
import array, io, threading, time, tessera
from common import MODEL, OPTIONS, dataset
model = tessera.load(MODEL)
"""
ALIVE = {
    "handles": "trainer = tessera.Trainer(model, dataset(model), **OPTIONS); generator = tessera.Generator(model)",
    "a cycle": "class A: pass\na = A(); a.a = a; a.model = model; del a, model",
    "a text in progress": "stream = model.generate('A', max_tokens=0); next(stream)",
    "views": "view = memoryview(tessera.Tensor.zeros('f32', [4])); capsule = tessera.Tensor.zeros('f32', [4]).__dlpack__()",
    "loans": "t = tessera.Tensor(array.array('f', [1])); m = tessera.load(open(MODEL, 'rb').read()); "
             "r = tessera.load(io.BytesIO(open(MODEL, 'rb').read()))",
    "a log and hooks": """
import ctypes, mmap
kept = {}
def allocate(size, alignment):
    memory = mmap.mmap(-1, size)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    kept[address] = memory
    return address
def started(role, number):
    time.sleep(0.01)
def log(level, text):
    print(runtime, text)
hooks = tessera.Hooks(allocate, lambda address, size: kept.pop(address), started)
runtime = tessera.Runtime(hooks=hooks, threads=2)
runtime.set_log(log)
trainer = tessera.Trainer(model, dataset(model), runtime=runtime, **OPTIONS)
trainer.step()""",
    "work in progress": """
large = tessera.Model("llama:L=48,C=4096,H=32,KV=8,F=11008,V=32000,T=2048")
begun = threading.Event()
def plans():
    tessera.Plan(large, devices="cpu:16", batch=64, memory_limit="64GiB", progress=lambda done: begun.set())
threading.Thread(target=plans, daemon=True).start()
begun.wait()""",
    "a callback in progress, which ends while the interpreter does": """
import sys
class Late:
    def __del__(self, sleep=time.sleep):
        sleep(0.5)
sys.late = Late()
begun = threading.Event()
class File(io.BytesIO):
    def read(self, size=-1):
        begun.set()
        time.sleep(0.2)
        return super().read(size)
content = open(MODEL, "rb").read()
def loads():
    try:
        tessera.load(File(content))
    except tessera.IoError:
        pass
threading.Thread(target=loads, daemon=True).start()
begun.wait()""",
    "a forked child, and another thread's callback": """
import os, warnings
warnings.simplefilter("ignore", DeprecationWarning)  # of a fork with threads
begun, end = threading.Event(), threading.Event()
def started(role, number):
    begun.set()
    end.wait()
threading.Thread(target=lambda: tessera.Runtime(hooks=tessera.Hooks(thread_started=started), threads=2)).start()
begun.wait()
if os.fork() != 0:
    assert os.wait()[1] == 0
    end.set()""",
    "steps of a daemon": """
trainer = tessera.Trainer(model, dataset(model), **OPTIONS)
begun = threading.Event()
def steps():
    for _ in trainer.steps(10 ** 9):
        begun.set()
threading.Thread(target=steps, daemon=True).start()
begun.wait()""",
    "texts of daemons": """
begun = threading.Event()
def texts():
    while True:
        model.generate("A", max_tokens=5).read()
        begun.set()
for _ in range(3):
    threading.Thread(target=texts, daemon=True).start()
begun.wait()""",
    "requests of an engine": """
large = tessera.Model("llama:L=2,C=64,H=4,F=128,V=256,T=8192")
large.tokenizer = model.tokenizer
engine = tessera.Engine(large, context=4000, cache_tokens=20000)
requests = [engine.submit("A", logits=i) for i in range(2)] + [engine.submit("B") for _ in range(3)]
next(requests[0])
assert next(requests[1]).kind == "logits"
def waits(request):
    for _ in request: pass
for request in requests[1:4]:
    threading.Thread(target=waits, args=(request,), daemon=True).start()
other = tessera.Engine(large, context=4000)
other.submit("A")
def collects():
    for _ in other.events(): pass
threading.Thread(target=collects, daemon=True).start()
time.sleep(0.02)""",
    "handles that end in a global's finaliser": """
class Late:
    def __init__(self): self.model = model
    def __del__(self):
        try: self.model.info()
        except tessera.InvalidArgumentError: pass
late = Late()""",
}


class Exit(unittest.TestCase):
    def test_the_interpreter_ends_cleanly(self):
        for what, code in ALIVE.items():
            with self.subTest(what):
                found = subprocess.run([sys.executable, "-X", "faulthandler", "-c", BEGIN + code], capture_output=True,
                                       text=True, timeout=60)
                self.assertEqual((found.returncode, found.stderr), (0, ""))


if __name__ == "__main__":
    unittest.main()
