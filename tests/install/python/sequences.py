"""Sequences that are forked, rewound, saved and restored go on; the twin of tests/install/sequences.c.

    sequences.py MODEL FILE        FILE is written
"""
import sys

import tessera


def go_on(engine, name, sequence, more):
    """Prints and gives the sequence of the text that follows a sequence, which may be None, and then these tokens."""
    request = engine.submit(sequence=sequence, ids=list(more), keep=1)
    request.text()
    made = request.sequence()
    print(f"{name}:", *made.tokens)
    return made


model, options = tessera.load(sys.argv[1]), {"devices": "cpu:2", "temperature": 0, "max_tokens": 8}
with tessera.Engine(model, **options) as engine:
    first = go_on(engine, "first", None, b"A computer")
    fork = first.fork()
    fork.rewind(12)
    go_on(engine, "fork", fork, b" x")
    go_on(engine, "original", first, b"")
    engine.save_sequence(first, sys.argv[2])
with tessera.Engine(model, **options) as engine:
    go_on(engine, "restored", engine.restore_sequence(sys.argv[2]), b"")
    go_on(engine, "elsewhere", fork, b" x")
