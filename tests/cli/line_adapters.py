#!/usr/bin/env python3
"""Adapters that lines of a file of prompts name: line_adapters.py TESSERA FOLDER. Each line's text is that of a model with its adapter."""
import json
import os
import pathlib
import re
import subprocess
import sys

TESSERA, WORK = os.path.abspath(sys.argv[1]), pathlib.Path(sys.argv[2]) / "line_adapters"
WORK.mkdir()
MODEL, FILE, OUT = WORK / "bytes.tsr", WORK / "requests.jsonl", WORK / "texts.jsonl"


def tessera(*words, status=0, **how):
    done = subprocess.run([TESSERA, *map(str, words)], capture_output=True, text=True, **how)
    assert done.returncode == status, (words, done.returncode, done.stderr)
    return done


def write(lines):
    FILE.write_text("".join(json.dumps(line) + "\n" for line in lines))


def results_of(*words, lines):
    write(lines)
    done = tessera("generate", MODEL, "--prompts", FILE, "-n", 12, "--temp", 0, "--seed", 1, "--quiet", *words)
    return [json.loads(line) for line in done.stdout.splitlines()]


def texts_of(*words, lines):
    return [result["text"] for result in results_of(*words, lines=lines)]


def refused(wanted, *words, lines=None):
    if lines is not None:
        write(lines)
    done = tessera("generate", MODEL, *words, status=1)
    assert re.search(wanted, done.stderr), (wanted, done.stderr)
    assert not OUT.exists() and not OUT.with_name(OUT.name + ".part").exists()


tessera("new", "llama:L=2,C=48,H=6,KV=3,F=48,V=256,T=256", "--tokenizer", "bytes", "-o", MODEL)
(WORK / "data.txt").write_text("".join(f"{i} little bytes, " for i in range(200)))
ADAPTERS = {}
for name, rank, more in (("one", 2, []), ("two", 5, []), ("dora", 2, ["--dora"])):
    trained, ADAPTERS[name] = WORK / f"{name}.tsr", WORK / "adapters" / name
    tessera("train", MODEL, "--data", WORK / "data.txt", "--lora", rank, *more, "--steps", 4, "--batch", 2, "--seq", 16, "--lr", 0.1, "--seed", rank, "--out", trained)
    ADAPTERS[name].parent.mkdir(exist_ok=True)
    tessera("export", trained, "--format", "peft", "-o", ADAPTERS[name])

# Names, paths from the file's folder and whole ones; a path and a name of the same are one adapter.
SAID = [None, "uno", "adapters/two", str(ADAPTERS["one"]), "./adapters/../adapters/two", None, "uno"]
OF = [None, "one", "two", "one", "two", None, "one"]
LINES = [{"prompt": f"0 little bytes, {i}", **({"adapter": said} if said else {})} for i, said in enumerate(SAID)]
NAMED = ["--adapter", f"uno={ADAPTERS['one']}", "--adapter", f"unused={WORK / 'none'}"]
found = texts_of(*NAMED, lines=LINES)
report = json.loads(tessera("generate", MODEL, "--prompts", FILE, "--out", OUT, "-n", 2, "--json", *NAMED, cwd="/").stdout)["report"]
OUT.unlink()
assert report["adapters"] == 2, report["adapters"]
whole = {adapter: texts_of(*(["--adapter", ADAPTERS[adapter]] if adapter else []), lines=[{"prompt": line["prompt"]} for line in LINES])
         for adapter in (None, "one", "two")}
assert whole[None] != whole["one"] != whole["two"] != whole[None]
assert found == [whole[of][i] for i, of in enumerate(OF)], (found, whole)
# One slot, which they take in turn; standard input, from another folder.
assert texts_of(*NAMED, "--adapters", 1, "--sequences", 3, lines=LINES) == found
# Factors of 16 bits: other numbers, but the same alone and in a batch, and without an adapter the same ones.
lines = [{**line, "logprobs": 0} for line in LINES]
wide, narrow, alone = (results_of(*NAMED, *words, lines=lines) for words in ([], ["--adapter-type", "bf16", "--adapter-rank", 9],
                                                                             ["--adapter-type", "bf16", "--sequences", 1]))
assert narrow == alone and [a == b for a, b in zip(wide, narrow)] == [of is None for of in OF], (wide, narrow)
lines = [json.dumps({**line, "adapter": ADAPTERS[of].name} if of else line) for line, of in zip(LINES, OF)]
done = tessera("generate", MODEL, "--prompts", "-", "-n", 12, "--temp", 0, "--quiet", input="\n".join(lines), cwd=WORK / "adapters")
assert [json.loads(line)["text"] for line in done.stdout.splitlines()] == found

# Nothing is computed where an adapter is none.
GOOD, FILES = {"prompt": "a", "adapter": "adapters/one"}, ["--prompts", FILE, "--out", OUT]
(WORK / "folder").mkdir()
for wanted, line in [(f"{WORK}/absent: there is no such file", {"prompt": "a", "adapter": "absent"}), (f"{WORK}/folder.*adapter_config.json", {"prompt": "a", "adapter": "folder"}),
                     (f"{WORK}/requests.jsonl: ", {"prompt": "a", "adapter": "requests.jsonl"}), ("lora_magnitude", {"prompt": "a", "adapter": "adapters/dora"}),
                     ("'adapter' is empty, wanted a path, or a name", {"prompt": "a", "adapter": ""}), ("'adapter' is '1', wanted a text", {"prompt": "a", "adapter": 1})]:
    refused(f"requests.jsonl: line 2: .*{wanted}", *FILES, lines=[GOOD, line, line])
refused("line 1: .*one: .*its rank for .* is 2, slots have room for 1: raise adapter_rank", *FILES, "--adapter-rank", 1, lines=[GOOD])
one = ADAPTERS["one"]
refused("line 1: 'adapter' is 'adapters/one', and the model has adapters: leave them out", *FILES, "--adapter", one)
for wanted, words in [("found .* and .*, wanted one to put on the model", ["--adapter", one, "--adapter", WORK]), ("two have the name 'a'", ["--adapter", "a=b", "--adapter", "a=c"]),
                      ("is '=b', wanted PATH or NAME=PATH", ["--adapter", "=b"]), ("is put on the model, and lines could not", ["--adapter", "a=b", "--adapter", one])]:
    refused("--adapter.*" + wanted, *FILES, *words)
refused("--adapter a=PATH: belongs to --prompts", "--prompt", "a", "--adapter", "a=b")
refused("'adapter_type' is 'q8_0'.*f32.*bf16.*f16", *FILES, "--adapter-type", "q8_0")
refused("--adapters: belongs to --prompts", "--prompt", "a", "--adapters", 2)
print(f"ok: adapters of lines: {len(LINES)} texts as of models with them; what cannot be opened has its line")
