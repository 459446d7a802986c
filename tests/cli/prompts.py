#!/usr/bin/env python3
"""Files of prompts: results in the file's order, bad lines, runs that are ended, what texts are allowed: prompts.py TESSERA FOLDER."""
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

TESSERA, WORK = sys.argv[1], pathlib.Path(sys.argv[2]) / "prompts"
WORK.mkdir()
MODEL, FILE, OUT = WORK / "bytes.tsr", WORK / "requests.jsonl", WORK / "texts.jsonl"
PART = WORK / "texts.jsonl.part"
subprocess.run([TESSERA, "new", "llama:L=2,C=48,H=6,KV=3,F=48,V=256,T=256", "--tokenizer", "bytes", "-o", MODEL], check=True, capture_output=True)


def generate(*words, **how):
    return subprocess.run([TESSERA, "generate", MODEL, *map(str, words)], capture_output=True, **how)


def run(*words, **how):
    done = generate(*words, **how)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


def refused(wanted, *words, **how):
    done = generate(*words, **how)
    assert done.returncode == 1 and re.search(wanted, done.stderr.decode()), (wanted, done.returncode, done.stderr.decode())
    return done


def write(*lines):
    FILE.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))


# Long and short texts, so that they end in another order than they begin.
SHARED = "A beginning that is shared, longer than the 64 tokens of a page of keys and values: "
REQUESTS = [{"id": i, "prompt": f"{SHARED}{i}", "max_tokens": 3 + 40 * (i % 3 == 0)} for i in range(20)]
REQUESTS += [{"ids": [1, 2, 3], "id": {"any": ["JSON"]}, "logprobs": 2, "prompt_logprobs": 0, "ignore_eos": 1},
             {"prompt": "two", "n": 2, "best_of": 3, "seed": 9},
             {"messages": [{"role": "user", "content": "hi"}], "template": "{{ messages[0].content }}", "choices": ["yes", "no"]},
             {"prompt": "a", "regex": "[0-9]{2}:[0-9]{2}", "stop": ["x"], "logit_bias": {"48": 2}}]
write(*REQUESTS)
settings = ["-n", 8, "--seed", 4, "--json-schema", WORK / "schema.json"]
(WORK / "schema.json").write_text('{"type": "object", "properties": {"age": {"type": "integer", "maximum": 99, "minimum": 10}}, "required": ["age"]}')
summary = json.loads(run("--prompts", FILE, "--out", OUT, "--json", "--quiet", "-n", 30, *settings[2:]))
text = OUT.read_text()
results = [json.loads(line) for line in text.splitlines()]
assert [it["line"] for it in results] == list(range(1, len(REQUESTS) + 1)) and not PART.exists()
assert [it.get("id") for it in results] == [it.get("id") for it in REQUESTS]
assert summary["requests"] == len(REQUESTS) and summary["failed"] == 0 and summary["report"]["generated"] >= summary["tokens"] > 0, summary
assert sum(it["prompt_tokens"] for it in results) == summary["prompt_tokens"] and summary["cached_tokens"] > 0, summary
for it in results[:20]:
    if it["finish"] == "stop":
        assert 10 <= json.loads(it["text"])["age"] <= 99, it
assert any(it["finish"] == "stop" for it in results[:20]), results[0]
assert len(results[20]["logprobs"]) == results[20]["tokens"] and len(results[20]["logprobs"][0]["top"]) == 2
assert len(results[20]["prompt_logprobs"]) == 3 and results[20]["prompt_logprobs"][0]["logprob"] is None
assert len(results[21]["texts"]) == 2 and results[22]["text"] in ("yes", "no"), results[21:23]
assert re.fullmatch("[0-9]{2}:[0-9]{2}", results[23]["text"]), results[23]  # its own, in the place of the command's

# The same from standard input and to standard output, alone and many at once.
assert run("--prompts", "-", "--quiet", "-n", 30, "--sequences", 1, *settings[2:], input=FILE.read_bytes()) == text
assert run("--prompts", FILE, "--out", OUT, "--quiet", "-n", 30, "--sequences", 24, "--no-prefix-cache", *settings[2:]) == "" and OUT.read_text() == text
assert run("--prompts", FILE, "--quiet", "-n", 30, "--draft-model", MODEL, "--draft-tokens", 2, *settings[2:]) == text
assert run("--prompts", FILE, "--quiet", "-n", 30, "--speculation", "ngram", *settings[2:]) == text
with_ids = [json.loads(line) for line in run("--prompts", FILE, "--ids", "--quiet", "-n", 30, *settings[2:]).splitlines()]
assert bytes(with_ids[23]["ids"][:5]).decode() == results[23]["text"], with_ids[23]
assert re.fullmatch("at [ab]{3}", run("--prompt", "at ", "--echo", "--regex", "[ab]{3}"))

# Nothing is computed where a line is wrong.
for wanted, line in [("'prompt' is '3', wanted a text", {"prompt": 3}), ("unknown key 'temprature'; did you mean 'temperature'", {"prompt": "a", "temprature": 1}),
                     ("found 'prompt' and 'ids', wanted one of", {"prompt": "a", "ids": [1]}), ("'tools' belongs to messages", {"prompt": "a", "tools": []}),
                     ("'max_tokens' is '1.5', wanted an integer", {"prompt": "a", "max_tokens": 1.5}), ("found '.\"prompt', wanted a JSON object: .*column 9", '{"prompt'),
                     ("found '.1.', wanted a JSON object", [1]), ("wanted one of prompt .a text., messages", {"id": 1}), ("is '.-1.', wanted an array of token ids", {"ids": [-1]}),
                     ("'seed' is .*, wanted an integer of 64 bits", {"prompt": "a", "seed": 10 ** 20}), ("wanted a text without NUL", {"prompt": "a", "regex": "\0"}),
                     ("nests deeper than 64", '{"id":' + "[" * 100), ("unknown key 'logits'", {"prompt": "a", "logits": 1}), ("", "")]:
    OUT.unlink(missing_ok=True)
    write({"prompt": "good"}, line, {"prompt": "good"})
    refused("requests.jsonl: line 2( is empty|: ).*" + wanted, "--prompts", FILE, "--out", OUT)
    assert not OUT.exists() and not PART.exists()
for wanted, words in [("holds no request", ["--prompts", "/dev/stdin"]), ("is a device", ["--prompts", "/dev/zero"]), ("cannot open", ["--prompts", WORK / "none"]),
                      ("belongs to --prompts", ["--out", OUT]), ("leave out one", ["--prompts", FILE, "--echo"]), ("is the file of the prompts", ["--prompts", FILE, "--out", FILE]),
                      ("there is no folder", ["--prompts", FILE, "--out", WORK / "none" / "out"])]:
    refused(wanted, *words, stdin=subprocess.PIPE)
# What only the model can tell fails its line alone.
write({"prompt": "good"}, {"prompt": "a" * 300}, {"prompt": "a", "temperature": -1})
refused("2 of 3 requests failed, the others are done; the first: .*line 2: the prompt has 300 tokens", "--prompts", FILE, "--out", OUT, "-n", 2)
results = [json.loads(line) for line in OUT.read_text().splitlines()]
assert [it["finish"] for it in results] == ["length", "failed", "failed"] and "temperature" in results[2]["error"], results


# Memory does not grow with the file.
def peak(count):
    write(*[{"prompt": "a" * 8000}] * count, {"prompt": 1})
    process = subprocess.Popen([TESSERA, "generate", MODEL, "--prompts", FILE], stderr=subprocess.DEVNULL)
    return os.wait4(process.pid, 0)[2].ru_maxrss


assert peak(1500) < peak(1) + 4096, "KiB"

# A run that is ended keeps what is done.
write(*[{"prompt": f"{i}", "max_tokens": 20} for i in range(100000)])
for how, status in ((signal.SIGTERM, 130), (signal.SIGKILL, -signal.SIGKILL)):
    process = subprocess.Popen([TESSERA, "generate", MODEL, "--prompts", FILE, "--out", OUT], stderr=subprocess.PIPE)
    while process.poll() is None and not (PART.exists() and PART.read_bytes().count(b"\n") > 20):
        time.sleep(0.02)
    process.send_signal(how)
    told = process.communicate()[1].decode()
    assert process.returncode == status, (process.returncode, told)
    # The system cuts a write of a process that is killed at the end of a page: what has no end of line is not done.
    done = [json.loads(line)["line"] for line in PART.read_bytes().split(b"\n")[:-1]]
    assert len(set(done)) == len(done) > 20, done
    if how == signal.SIGTERM:
        assert re.search(r"interrupted: \d+ of 100000 are done; their results are in .*\.part", told), told
    refused("part is there: results of a run that did not end", "--prompts", FILE, "--out", OUT)
    PART.unlink()
print(f"ok: files of prompts: {len(REQUESTS)} results in order, alone and at once; bad lines, and runs that are ended")
