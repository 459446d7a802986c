#!/usr/bin/env python3
"""`tessera embed` of a decoder: by an engine as in batches, with texts that are cut, and what is refused: vectors.py TESSERA MODEL FOLDER."""
import json
import pathlib
import subprocess
import sys

TESSERA, MODEL, WORK = sys.argv[1:]
texts = ["One day", "One day a girl", "x", "The sun was out and the birds sang, and nobody had to go anywhere at all."]
file = pathlib.Path(WORK) / "embedded.txt"
file.write_text("\n".join(texts))


def rows(*words):
    out = subprocess.run([TESSERA, "embed", MODEL, *map(str, words), "--json", "--quiet"], check=True, capture_output=True).stdout
    lines = [json.loads(line) for line in out.splitlines()]
    assert [line["line"] for line in lines[:-1]] == list(range(lines[-1]["texts"]))
    return [line["embedding"] for line in lines[:-1]], lines[-1]["report"]


for words in ([], ["--pooling", "mean", "--normalize"], ["--pooling", "cls"]):
    served, report = rows("--file", file, *words)
    batches, wanted = rows("--file", file, *words, "--batch", 2)
    assert "cached_tokens" in report and "cached_tokens" not in wanted
    for key in ("texts", "tokens", "truncated", "seq", "width", "output", "normalize", "pooling"):
        assert report[key] == wanted[key], (key, report, wanted)
    for a, b in zip(served, batches, strict=True):
        assert max(abs(x - y) for x, y in zip(a, b, strict=True)) < 1e-5
    assert rows("--text", texts[1], *words)[0] == served[1:2]
cut, report = rows("--file", file, "--seq", 8)
assert report["truncated"] > 0 and len(cut) == len(texts)
failed = subprocess.run([TESSERA, "embed", MODEL, "--text", "a", "--pooling", "none"], capture_output=True, text=True)
assert failed.returncode == 1 and "'pooling' is 'none'" in failed.stderr, failed.stderr
print(f"ok: embed: {len(texts)} texts by an engine as in batches and alone")
