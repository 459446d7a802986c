#!/usr/bin/env python3
"""Rows of training data on the command line: data.py TESSERA FOLDER."""
import json
import pathlib
import subprocess
import sys

TESSERA, FOLDER = sys.argv[1], pathlib.Path(sys.argv[2])
MODEL, ROWS, TEMPLATE = FOLDER / "rows.tsr", FOLDER / "rows.jsonl", FOLDER / "rows.jinja"


def run(*words):
    done = subprocess.run([TESSERA, *map(str, words)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


run("new", "llama:L=1,C=16,H=2,F=16,V=256,T=64", "--seed", "1", "-o", MODEL, "--tokenizer", "bytes")
TEMPLATE.write_text("{% for m in messages %}{{ m.role[0] + ':' + m.content + '\\n' }}{% endfor %}{% if add_generation_prompt %}a:{% endif %}")
ROWS.write_text("".join(json.dumps(row) + "\n" for row in [
    {"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yo"}], "id": 7},
    {"messages": [{"role": "user", "content": "Sky?"}, {"role": "assistant", "content": "Blue."}]},
    {"messages": []},
]))
wanted = ("--template", TEMPLATE, "--seq", 32, "--packing", "bfd", "--skip-bad")
shown = run("data", ROWS, "--model", MODEL, *wanted)
for part in ("u:Hi\na:⟦Yo\n⟧", "examples   2 of kind messages", "left out   1 rows that are none", "rows.jsonl line 3: field 'messages' is an empty array",
             "not read   fields id", "1 of 32 tokens an epoch"):
    assert part in shown, (part, shown)
info = json.loads(run("data", ROWS, "--model", MODEL, "--json", *wanted))
assert info["first"][0]["text"] == "u:Hi\na:⟦Yo\n⟧" and sum(info["first"][0]["trained"]) == 3, info
losses = json.loads(run("train", MODEL, "--data", ROWS, "--steps", 12, "--batch", 1, "--lr", 0.02, "--out", FOLDER / "rows_out.tsr", "--json", "--quiet",
                        *wanted))["losses"]
assert losses[-1] < 0.8 * losses[0], losses
refused = subprocess.run([TESSERA, "data", ROWS, "--model", MODEL, "--template", TEMPLATE], capture_output=True, text=True)
assert refused.returncode == 1 and "line 3" in refused.stderr and "skip_bad" in refused.stderr, refused.stderr
print("ok: rows of training data: shown, counted, packed and trained on")
