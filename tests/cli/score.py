#!/usr/bin/env python3
"""`tessera score`: a line for each token, whose texts are the file's, sums, windows, lines, ids: score.py TESSERA MODEL TEXT FOLDER."""
import json
import math
import pathlib
import subprocess
import sys

TESSERA, MODEL, TEXT, WORK = sys.argv[1:]
WORK = pathlib.Path(WORK)
text = open(TEXT, "rb").read()[:1500]
file = WORK / "scored.txt"
file.write_bytes(text)


def run(*words, **how):
    return subprocess.run([TESSERA, "score", MODEL, *map(str, words)], check=True, capture_output=True, **how).stdout.decode()


def scored(*words, **how):
    lines = [json.loads(line) for line in run(*words, "--json", **how).splitlines()]
    return lines[:-1], lines[-1]


short = ["--seq", 64, "--stride", 24]
tokens, sums = scored("--file", file, *short)
encoded = json.loads(subprocess.run([TESSERA, "tokenize", MODEL, "--file", str(file), "--json"], check=True, capture_output=True).stdout)
assert [line["token"] for line in tokens] == encoded["ids"], "the tokens are not the tokenizer's"
for line, after in zip(tokens, tokens[1:] + [{"offset": len(text)}]):
    piece = text[line["offset"]:after["offset"]].decode(errors="replace")
    assert line["text"] == piece, f"at byte {line['offset']}: {line['text']!r}, the file has {piece!r}"
known = [line for line in tokens if line["logprob"] is not None]
assert tokens[1:] == [line for line in known if line is not tokens[0]], "more than the first token has no score"
assert all(line["logprob"] <= 0 for line in known)
assert sums["tokens"] == len(known) == sums["report"]["scored_tokens"]
nll = -math.fsum(line["logprob"] for line in known)
assert math.isclose(sums["nll"], nll, rel_tol=1e-9) and math.isclose(sums["perplexity"], math.exp(nll / len(known)), rel_tol=1e-9)
assert math.isclose(sums["bits_per_byte"] * math.log(2) * sums["bytes"], nll, rel_tol=1e-9)
assert sums["bytes"] == len(text) - (0 if known[0] is tokens[0] else tokens[1]["offset"])
assert sums["greedy"] == sum(line["greedy"] for line in known)

# The same from standard input, on two devices, in batches, and of the ids.
for words, how in [(["--file", "-", *short], {"input": text}), (["--file", file, *short, "--devices", "cpu:2", "--parallel", "tp=2", "--batch", 3], {})]:
    other, _ = scored(*words, **how)
    assert len(other) == len(tokens)
    for a, b in zip(tokens, other):
        assert a["token"] == b["token"] and a["offset"] == b["offset"]
        assert (a["logprob"] is None) == (b["logprob"] is None) and math.isclose(a["logprob"] or 0, b["logprob"] or 0, abs_tol=1e-3)
(WORK / "scored.ids").write_text(" ".join(map(str, encoded["ids"])) + "\n")
other, _ = scored("--file", WORK / "scored.ids", "--ids", *short)
assert [line["logprob"] for line in other] == [line["logprob"] for line in tokens]

# Lines are texts of their own, however many are computed at once.
(WORK / "scored.lines").write_bytes(b"one line\r\n\nanother, which is longer than the first\nlast")
lines, sums = scored("--file", WORK / "scored.lines", "--lines", *short, "--batch", 4)
assert sorted({line["line"] for line in lines}) == [0, 2, 3] and sums["report"]["sequences"] == 4
(WORK / "scored.last").write_bytes(b"last")
alone, _ = scored("--file", WORK / "scored.last", *short)
assert [line["logprob"] for line in alone] == [line["logprob"] for line in lines if line["line"] == 3]

# So they are where an engine computes them, what they begin with alike once: each as by itself, and as in windows.
context = text[:90].replace(b"\n", b" ")
choices = [context + end for end in (b" first", b" second one", b"", b" first", b" third")] + [b"another", b"", b"x"]
(WORK / "scored.choices").write_bytes(b"\n".join(choices))
together, sums = scored("--file", WORK / "scored.choices", "--lines")
windows, wanted = scored("--file", WORK / "scored.choices", "--lines", "--batch", 2)
assert len(together) == len(windows) and sums["report"]["bos"] == wanted["report"]["bos"]
assert sums["report"]["positions"] < wanted["report"]["tokens"] / 2 and "cached_tokens" in sums["report"], sums["report"]
for a, b in zip(together, windows):
    assert {**a, "logprob": 0} == {**b, "logprob": 0} and (a["logprob"] is None) == (b["logprob"] is None), (a, b)
    assert math.isclose(a["logprob"] or 0, b["logprob"] or 0, abs_tol=1e-5), (a, b)
(WORK / "scored.last").write_bytes(choices[-4])
alone, _ = scored("--file", WORK / "scored.last", "--lines")
assert [line["logprob"] for line in alone] == [line["logprob"] for line in together if line["line"] == 4]
long, sums = scored("--file", WORK / "scored.choices", "--lines", "--seq", 16)  # texts in windows after all
assert sums["report"]["windows"] > len(choices) and "cached_tokens" not in sums["report"]

told = run("--file", file, *short)
assert told.startswith("perplexity  ") and "bits a byte" in told and "window" in told, told
for words, wanted in [(["--file", file, "--seq", 8, "--stride", 9], "option 'stride' is 9, a window has 8 tokens"),
                      (["--file", WORK / "none"], "cannot open"), ([file], "did you mean --file"),
                      (["--file", file, "--ids"], "--ids: found"), (["--file", "/dev/null", "--bos", "none"], "is a device")]:
    failed = subprocess.run([TESSERA, "score", MODEL, *map(str, words)], capture_output=True)
    assert failed.returncode in (1, 2) and wanted in failed.stderr.decode(), (words, failed.stderr.decode())
(WORK / "scored.empty").write_bytes(b"")
failed = subprocess.run([TESSERA, "score", MODEL, "--file", str(WORK / "scored.empty")], capture_output=True)
assert failed.returncode == 1 and "0 tokens" in failed.stderr.decode(), failed.stderr
print(f"ok: score: {len(tokens)} tokens, whose texts and sums are the file's, in windows, lines, batches and on 2 devices")
