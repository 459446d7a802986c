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
