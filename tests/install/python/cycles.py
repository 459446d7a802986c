"""Resident memory stays steady: 10,000 handles made and dropped, in any order, by several threads; 100 trainings, some of
them cancelled from other threads."""
import array
import os
import random
import threading

import tessera
from common import MODEL, OPTIONS, TEXT, dataset


def resident_kib():
    with open("/proc/self/status", encoding="ascii") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmRSS"))


def handles(count, model, choices):
    """Makes and drops handles, closed by hand or not; ten at a time are alive."""
    alive = []
    for i in range(count):
        kind = choices.randrange(6)
        if kind == 0:
            alive.append(tessera.load(MODEL))
        elif kind == 1:
            alive.append(tessera.Tensor(array.array("f", range(64))))
        elif kind == 2:
            alive.append(memoryview(tessera.Tensor.zeros("f32", [64])))
        elif kind == 3:
            alive.append(model.tokenizer)
        elif kind == 4:
            alive.append(tessera.Graph())
        else:
            alive.append(tessera.Dataset.from_tokens(range(100), seq=8))
        if len(alive) > 10:
            last = alive.pop(choices.randrange(len(alive)))
            if choices.random() < 0.5 and isinstance(last, tessera.Tensor | tessera.Model):
                last.close()


def trainings(count, model, data):
    for i in range(count):
        trainer = tessera.Trainer(model, data, steps=2, **OPTIONS)
        cancel = threading.Thread(target=trainer.cancel)
        if i % 3 == 0:
            cancel.start()
        try:
            for _ in trainer.steps(2):
                pass
        except tessera.CancelledError:
            pass
        if i % 3 == 0:
            cancel.join()
        if i % 2 == 0:
            trainer.close()


def runtimes(count, model, data):
    """Runtimes with hooks and a log, and long work with them, some of which is given up."""
    for i in range(count):
        hooks = tessera.Hooks(thread_started=lambda role, number: None)
        runtime = tessera.Runtime(hooks=hooks, threads=2)
        runtime.set_log(lambda level, text: None)
        try:
            tessera.Dataset(TEXT, model.tokenizer, seq=32, runtime=runtime, progress=lambda done: 1 // (i % 3))
            tessera.Plan(model, runtime=runtime, progress=lambda done: 1 // (i % 3), **OPTIONS)
            trainer = tessera.Trainer(model, data, runtime=runtime, **OPTIONS)
            trainer.save_model(model, os.devnull + "/no", progress=lambda done: None)
        except (ZeroDivisionError, tessera.TesseraError):
            pass


def engines(count, model):
    """Engines that are closed, or not, while requests are in progress."""
    for i in range(count):
        engine = tessera.Engine(model, max_tokens=4, sequences=2)
        engine.generate(["A", "b", "c"])
        kept = engine.submit("A", keep=1)
        kept.text()
        fork = kept.sequence().fork()
        next(engine.submit("in progress"))
        if i % 2:
            engine.close()
            fork.close()


def steady(what, work, allowed_kib):
    """Runs work twice to warm up, and again: memory must not grow by more than what is allowed."""
    work()
    work()
    before = resident_kib()
    work()
    grown = resident_kib() - before
    print(f"{what}: resident memory grew by {grown} KiB, allowed {allowed_kib}", flush=True)
    assert grown <= allowed_kib


def main():
    model = tessera.load(MODEL)
    data = dataset(model)
    for threads in (1, 4):
        def work():
            running = [threading.Thread(target=handles, args=(10000 // threads, model, random.Random(i)))
                       for i in range(threads)]
            for thread in running:
                thread.start()
            for thread in running:
                thread.join()
        steady(f"10,000 handles on {threads} thread(s)", work, 4096)
    steady("100 trainings", lambda: trainings(100, model, data), 4096)
    steady("100 runtimes", lambda: runtimes(100, model, data), 4096)
    steady("100 engines", lambda: engines(100, model), 4096)
    steady("200 texts", lambda: [str(model.generate("A", max_tokens=4)) for _ in range(200)], 4096)
    print("ok: Python: 10,000 handles, 100 trainings and cancels leave memory as it was")


if __name__ == "__main__":
    main()
