#!/usr/bin/env python3
"""Trains a model as `tessera train` does: evaluations, the best checkpoint, early stopping, samples, a page of the run. Run again
after a kill it goes on from its last checkpoint; the twin of samples/c/training_run.c.

    training_run.py MODEL DATA OUT [STEPS]        e.g.  training_run.py small.tsr notes.txt tuned.tsr 60
"""
import json
import sys

import tessera


def train(path: str, data: str, out: str, steps: int) -> None:
    try:
        resume = tessera.resumed_folder(out)
    except tessera.NotFoundError:
        resume = None
    with tessera.load(path) as model:
        dataset = tessera.Dataset(data, model.tokenizer, seq=32, eval_fraction=0.1)
        with (tessera.Trainer(model, dataset, batch=8, steps=steps, lr=1e-3) as trainer,
              tessera.Run(trainer, out=out, resume=resume, eval_every=10, keep_best=True, patience=3, keep=2,
                          samples="Once upon a time", report=out + ".html") as run):
            for event in run:
                if event.kind == "step":
                    print(f"step {event.step} loss {event.loss:.9g}", flush=True)
                elif event.kind == "evaluation":
                    print(f"eval_loss {event.loss:.9g}", flush=True)
                elif event.kind == "end":
                    print(event.details["outcome"])
                else:
                    print(json.dumps(event.details, separators=(",", ":"), ensure_ascii=False))


def main(argv: list[str]) -> int:
    if len(argv) < 4:
        print(f"usage: {argv[0]} MODEL DATA OUT [STEPS]", file=sys.stderr)
        return 2
    try:
        train(*argv[1:4], steps=int(argv[4]) if len(argv) > 4 else 60)
    except tessera.TesseraError as error:
        print(f"{error.code_name}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
