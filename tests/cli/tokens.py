#!/usr/bin/env python3
"""tokens.py TESSERA VOCABULARY.gguf: every test string next to the vocabulary file gives the expected ids."""
import json
import subprocess
import sys

tessera, vocabulary = sys.argv[1:]
strings = open(vocabulary + ".inp", encoding="utf-8", newline="").read().split("\n__ggml_vocab_test__\n")
expected = [[int(t) for t in line.split()] for line in open(vocabulary + ".out").read().split("\n")]
expected = expected[: len(strings)]
wrong = 0
for string, ids in zip(strings, expected):
    run = subprocess.run([tessera, "tokenize", vocabulary, "--file", "-", "--json"], input=string.encode(),
                         capture_output=True, check=True)
    got = json.loads(run.stdout.splitlines()[-1])["ids"]
    if got != ids:
        wrong += 1
        print(f"{string!r}: got {got}, expected {ids}")
print(f"{vocabulary.rsplit('/', 1)[-1]}: {len(strings) - wrong} of {len(strings)} strings exact")
sys.exit(wrong > 0 or len(strings) < 46)
