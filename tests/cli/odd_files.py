#!/usr/bin/env python3
"""odd_files.py TESSERA FOLDER [all]: every option that takes a file meets pipes, folders, sockets, devices, links to
nothing, empty and unreadable files. Wanted: no wait (a stream that is read waits for its writer, and SIGTERM ends it),
exit status 1 or 2 and a message that names the path. Without `all`, each option meets one kind."""
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

TESSERA, WORK = os.path.abspath(sys.argv[1]), f"{sys.argv[2]}/odd_files"
MOST_SECONDS = 20  # of a machine under load
os.makedirs(f"{WORK}/run", exist_ok=True)
os.chmod(f"{WORK}/run", 0o777)


def made(*words):
    subprocess.run([TESSERA, *words], check=True, capture_output=True)


M, E, D, R = (f"{WORK}/{name}" for name in ("m.tsr", "e.tsr", "text.txt", "rows.jsonl"))
made("new", "llama:L=1,C=32,H=2,F=64,V=512,T=64", "--tokenizer", "bytes", "-o", M)
with open(D, "w", encoding="utf-8") as file:
    file.write("the quick brown fox jumps over the lazy dog. " * 40)
with open(R, "w", encoding="utf-8") as file:
    for i in range(20):
        file.write(json.dumps({"prompt": f"question {i}", "completion": "an answer"}) + "\n")

# (words with @ for the path, what the path is): "in", "stream" (a pipe is read), "out" (text; a device is written to),
# "file" (an output that is a plain file), "folder".
TRAIN = f"train {M} --data {D} --seq 16 --batch 2 --steps 1"
ROWS = f"train {M} --data {R} --seq 32 --batch 2 --steps 1"
CASES = [
    (f"adapt @ --lora 4 -o OUT", "in"), (f"adapt {M} --lora 4 -o @", "file"), (f"adapt {M} --adapter @ -o OUT", "in"),
    (f"bench @ --mode decode", "in"), (f"bench {M} --steps 1 --batch 2 --seq 16 --plan @", "stream"),
    (f"bench {M} --steps 1 --batch 2 --seq 16 --profile @", "stream"),
    (f"chat @", "in"), (f"chat {M} --template @", "stream"), (f"chat {M} --tools @", "stream"), (f"chat {M} --adapter @", "in"),
    (f"data @ --model {M}", "stream"), (f"data {R} --model @", "in"), (f"data {R} --model {M} --template @", "stream"),
    (f"data {R} --model {M} --eval-file @", "stream"), (f"data {R} --model {M} --cache @", "folder"),
    (f"eval @ --data {D}", "in"), (f"eval {M} --seq 16 --data @", "stream"),
    (f"export @ -o OUT", "in"), (f"export {M} -o @", "folder"), (f"export {M} --format gguf -o @", "file"),
    (f"export {M} --format gguf --type q8_0 --imatrix @ -o OUT", "in"),
    (f"generate @ --prompt a -n 1", "in"), (f"generate {M} --prompts @ -n 1", "stream"),
    (f"generate {M} --prompts REQUESTS -n 1 --out @", "out"), (f"generate {M} --prompts REQUESTS -n 1 --json-schema @", "stream"),
    (f"generate {M} --prompts REQUESTS -n 1 --grammar @", "stream"), (f"generate {M} --prompt a -n 1 --adapter @", "in"),
    (f"generate {M} --prompts REQUESTS -n 1 --draft-model @", "in"),
    (f"imatrix @ --file {D} -o OUT", "in"), (f"imatrix {M} --seq 16 --file @ -o OUT", "stream"), (f"imatrix {M} --seq 16 --file {D} -o @", "file"),
    (f"import @ -o OUT", "in"), (f"import {M} -o @", "file"), (f"inspect @", "in"), (f"inspect @ --verify", "in"),
    (f"merge @ -o OUT", "in"), (f"new llama:L=1,C=32,H=2,V=512,F=64,T=64 -o @", "file"), (f"new llama:L=1,C=32,H=2,V=512,F=64,T=64 --tokenizer @ -o OUT", "in"),
    (f"plan @", "in"), (f"plan {M} --batch 2 --seq 16 -o @", "file"), (f"plan {M} --batch 2 --seq 16 --report @", "out"),
    (f"plan {M} --batch 2 --seq 16 --trace @", "out"), (f"plan {M} --batch 2 --seq 16 --pins @", "stream"),
    (f"plan llama:L=1,C=32,H=2,V=512,F=64,T=64 --cluster @.json", "stream"), (f"plan --check @", "stream"),
    (f"quantize @ OUT --type q8_0", "in"), (f"quantize {M} @ --type q8_0", "file"), (f"quantize {M} OUT --type q8_0 --imatrix @", "in"),
    (f"score @ --file {D}", "in"), (f"score {M} --seq 16 --file @", "stream"), (f"tokenize @ word", "in"), (f"tokenize {M} --file @", "stream"),
    (TRAIN.replace(M, "@"), "in"), (TRAIN.replace(D, "@"), "stream"), (f"{TRAIN} --checkpoint-every 0 --out @", "file"),
    (f"{TRAIN} --checkpoint @", "folder"), (f"{TRAIN} --resume @", "in"), (f"{TRAIN} --init @", "in"), (f"{TRAIN} --metrics @", "out"),
    (f"{TRAIN} --report @", "file"), (f"{TRAIN} --tensorboard @", "folder"), (f"{TRAIN} --trace @", "out"),
    (f"{TRAIN} --plan @", "stream"), (f"{TRAIN} --profile @", "stream"), (f"{ROWS} --template @", "stream"), (f"{ROWS} --cache @", "folder"),
    (f"{ROWS} --eval-file @", "stream"), (f"{TRAIN} --lora 2 --adapter @", "in"),
]
KINDS = ["pipe", "folder", "socket", "link", "device", "full", "empty", "unreadable"]


def make(kind, path):
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        os.mkdir(path)
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as made_socket:
            made_socket.bind(path)
    elif kind in ("link", "device", "full"):
        os.symlink({"link": f"{path}.none", "device": "/dev/zero", "full": "/dev/full"}[kind], path)
    else:
        open(path, "w", encoding="utf-8").close()
        os.chmod(path, 0o000 if kind == "unreadable" else 0o666)


def holds_result(of, kind, path):
    """Whether a command that took the odd file did with it what its option is for."""
    if kind == "device":
        return os.path.islink(path)  # written into, not replaced
    if of == "stream":
        return os.path.getsize(path) == 0  # read alone
    return bool(os.listdir(path)) if of == "folder" else os.path.getsize(path) > 0


def check(number, words, of, kind):
    folder = f"{WORK}/run/{number}-{kind}"
    os.mkdir(folder)
    os.chmod(folder, 0o777)
    path = f"{folder}/odd.json" if "@.json" in words else f"{folder}/odd"
    make(kind, path)
    with open(f"{folder}/requests", "w", encoding="utf-8") as requests:
        requests.write('{"prompt": "a"}\n')
    words = words.replace("@.json", path).replace("@", path).replace("OUT", f"{folder}/out").replace("REQUESTS", f"{folder}/requests")
    user = 65534 if kind == "unreadable" and os.getuid() == 0 else None  # root may read everything
    begin = time.time()
    process = subprocess.Popen([TESSERA, *words.split()], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, user=user,
                               env={**os.environ, "TESSERA_PROFILE": "none", "TMPDIR": folder})
    waits = False
    if of == "stream" and kind == "pipe":  # it may wait for the writer, until it is told to end
        try:
            process.wait(0.7)
        except subprocess.TimeoutExpired:
            waits = True
            process.send_signal(signal.SIGTERM)
    try:
        _, said = process.communicate(timeout=MOST_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return f"{kind}: {words}: hangs"
    code = process.returncode
    if waits:
        return None if code in (130, 143, -signal.SIGTERM) else f"{kind}: {words}: exit {code} after SIGTERM: {said}"
    may_pass = {"out": ("link", "device", "empty", "unreadable"), "file": ("link", "empty", "unreadable"),
                "folder": ("folder", "link"), "stream": ("empty",), "in": ()}[of]
    if code == 0:
        if kind not in may_pass:
            return f"{kind}: {words}: exit 0: {said}"
        return None if holds_result(of, kind, path) else f"{kind}: {words}: exit 0, and nothing is in {path}: {said}"
    names = (os.path.basename(path), os.path.realpath(path))  # what a link to a device leads to will do
    if code not in (1, 2) or not any(name in said for name in names) or len(said.strip().splitlines()) > 6:
        return f"{kind}: {words}: exit {code} after {time.time() - begin:.1f} s: {said[-300:]}"
    return None


if len(sys.argv) > 3:
    trials = [(n, *case, kind) for n, case in enumerate(CASES) for kind in KINDS]
else:
    trials = [(n, *case, KINDS[n % len(KINDS)]) for n, case in enumerate(CASES)]
with ThreadPoolExecutor(2) as pool:
    failed = [found for found in pool.map(lambda trial: check(*trial), trials) if found]
assert not failed, "\n".join(failed)
print(f"ok: {len(trials)} names of files that lead to pipes, folders, sockets, devices, nothing: refused by name, none waits")
