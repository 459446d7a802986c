#!/usr/bin/env python3
"""Fine-tunes a model on a text file, on all devices named, and saves it; the twin of samples/c/finetune.c. Where the
steps need not be one's own, `tessera.finetune(model, data, out=..., steps=...)` is all of it.

    finetune.py MODEL TEXT OUT [DEVICES [STEPS]]        e.g.  finetune.py small.tsr notes.txt tuned.tsr cpu:4 100
"""
import json
import sys

import tessera


def finetune(path: str, text: str, out: str, devices: str, steps: int) -> None:
    with tessera.load(path) as model:
        dataset = tessera.Dataset(text, model.tokenizer, seq=32, eval_fraction=0.05)
        with tessera.Trainer(model, dataset, devices=devices, batch=8, steps=steps, lr=3e-3, schedule="cosine",
                             eval_batches=4) as trainer:
            print("plan", json.dumps(trainer.plan().info(), separators=(",", ":")))
            for step in trainer.steps(steps):
                print(f"step {step.step} loss {step.loss:.9g}")
            print(f"eval_loss {trainer.evaluate():.9g}")
            trainer.store(model)
        model.save(out)


def main(argv: list[str]) -> int:
    if len(argv) < 4:
        print(f"usage: {argv[0]} MODEL TEXT OUT [DEVICES [STEPS]]", file=sys.stderr)
        return 2
    try:
        finetune(*argv[1:4], devices=argv[4] if len(argv) > 4 else "cpu:2", steps=int(argv[5]) if len(argv) > 5 else 20)
    except tessera.TesseraError as error:
        print(f"{error.code_name}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
