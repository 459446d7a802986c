#!/usr/bin/env python3
"""kills.py BUILD [--kills 100] [--seed 1] [--ready SECONDS]: `tessera serve` killed at random moments under load.

Clients stream texts, upload files, order jobs, and train three runs of Tinker's protocol side by side, each saving a checkpoint after
every second step. The service is killed, and started again on its folder. Then: each reply that a client has seen whole is the one
of a service that was never killed; each file, job and checkpoint that was acknowledged is there, with its content; a training that goes on from
a checkpoint has the log probabilities of one that was never killed, to the bit, and each job its final bits; SQLite's
integrity_check of a copy of the folder, taken while the service is dead, says ok. Prints how long the starts took; with --ready, one that
took longer is a failure. BUILD has cli/tessera, cli/tessera-serve and the small model that check.sh makes."""
import argparse
import hashlib
import http.client
import json
import os
import pathlib
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

MODEL = "small"
PROMPTS = ["Once", "A lamp", "The sea is", "Mind the"]
ROWS = "".join(json.dumps({"prompt": f"say {i}", "completion": f" {i} it is"}) + "\n" for i in range(20))
TENANTS = [{"rank": 4, "seed": 5}, {"rank": 2, "seed": 9, "train_mlp": False}, {"rank": 8, "seed": 1, "train_attn": False}]
PROBE = [5, 9, 20, 33, 40, 41, 7, 3]
PATIENCE = 120
failures = []


class Lost(Exception):
    """No whole reply: the service was killed, or is not there yet."""


class Refused(Exception):
    def __init__(self, status, text):
        super().__init__(f"{status} {text}")
        self.status = status


def fail(text):
    failures.append(text)
    print("FAIL", text, flush=True)


class Service:
    """A process of tessera-serve, its lives on one folder."""

    def __init__(self, build, folder):
        self.program, self.folder = build / "cli" / "tessera-serve", folder
        self.model = build / "service" / f"{MODEL}.tsr"
        self.log = open(folder.with_suffix(".log"), "ab", buffering=0)
        self.url, self.process, self.starts = None, None, []
        self.alive = threading.Event()

    def start(self):
        begun = time.monotonic()
        self.process = subprocess.Popen([self.program, self.model, "--port", "0", "--state", self.folder, "--sequences", "4", "--context", "256",
                                         "--train-context", "32", "--training-rows", "2", "--training-rank", "8"], stderr=subprocess.PIPE, text=True)
        for line in self.process.stderr:
            self.log.write(line.encode())
            if '"serving"' in line:
                self.url = json.loads(line)["url"]
                break
        else:
            raise SystemExit(f"the service ended with {self.process.wait()}; its log: {self.log.name}")
        threading.Thread(target=self.read, args=(self.process.stderr,), daemon=True).start()
        with urllib.request.urlopen(self.url + "/health", timeout=PATIENCE) as reply:
            reply.read()
        self.starts.append(time.monotonic() - begun)
        self.alive.set()

    def read(self, lines):
        for line in lines:
            self.log.write(line.encode())

    def end(self, how):
        self.alive.clear()
        self.process.send_signal(how)
        status = self.process.wait()
        if how == signal.SIGTERM and status:
            fail(f"the service ended with {status} after SIGTERM")

    def ask(self, path, body=None, headers=None, raw=False):
        """The reply to a request, JSON unless raw. Lost where it is not whole."""
        if not self.alive.wait(PATIENCE):
            raise SystemExit("the service is not back")
        data = json.dumps(body).encode() if isinstance(body, dict) else body
        request = urllib.request.Request(self.url + path, data, {"Content-Type": "application/json", **(headers or {})})
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE) as reply:
                content = reply.read()
        except urllib.error.HTTPError as error:
            if error.code in (410, 503):  # a future of a life that is over; draining
                time.sleep(0.05)
                raise Lost from None
            raise Refused(error.code, error.read().decode(errors="replace")) from None
        except (OSError, http.client.HTTPException):
            time.sleep(0.02)
            raise Lost from None
        return content if raw else json.loads(content)

    def insist(self, path, body=None, headers=None, raw=False):
        """ask, again until there is a reply: for requests that may be repeated."""
        while True:
            try:
                return self.ask(path, body, headers, raw)
            except Lost:
                pass


def streamed(service, prompt):
    """A streamed text, whole or Lost."""
    text = service.ask("/v1/completions", {"model": MODEL, "prompt": prompt, "max_tokens": 24, "temperature": 0, "stream": True}, raw=True).decode()
    if not text.endswith("data: [DONE]\n\n"):
        raise Lost
    return "".join(json.loads(line[6:])["choices"][0]["text"] for line in text.splitlines() if line.startswith("data: {"))


def upload(service, content, key, purpose="fine-tune"):
    boundary = "b" * 30
    parts = [f'--{boundary}\r\nContent-Disposition: form-data; name="purpose"\r\n\r\n{purpose}\r\n'.encode(),
             f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="rows.jsonl"\r\n\r\n'.encode() + content,
             f"\r\n--{boundary}--\r\n".encode()]
    return service.ask("/v1/files", b"".join(parts), {"Content-Type": f"multipart/form-data; boundary={boundary}", "Idempotency-Key": key})["id"]


def order(service, file, key):
    return service.ask("/v1/fine_tuning/jobs", {"model": MODEL, "training_file": file, "seed": 7,
                                                "hyperparameters": {"n_epochs": 2, "batch_size": 4}}, {"Idempotency-Key": key})["id"]


class Run:
    """A training by primitives, in one life of the service."""

    def __init__(self, service, adapters, checkpoint=None):
        self.service, self.number = service, 0
        self.session = service.ask("/api/v1/create_session", {"sdk_version": "0.38.0"})["session_id"]
        body = {"session_id": self.session, "model_seq_id": 0}
        if checkpoint:
            self.model = self.finish("load_weights", {**body, "path": checkpoint, "optimizer": True})["model_id"]
        else:
            self.model = self.finish("create_model", {**body, "base_model": MODEL, "lora_config": adapters})["model_id"]

    def finish(self, path, body):
        began = self.service.ask("/api/v1/" + path, body)
        while True:
            found = self.service.ask("/api/v1/retrieve_future", {"request_id": began["request_id"]})
            if found.get("type") != "try_again":
                if "error" in found:
                    raise Refused(500, found["error"])
                return found

    def send(self, path, body):
        self.number += 1
        return self.finish(path, {"model_id": self.model, "seq_id": self.number, **body})

    def batch(self, kind, tokens):
        inputs = {"target_tokens": {"data": tokens[1:], "dtype": "int64"}, "weights": {"data": [1] * (len(tokens) - 1), "dtype": "float32"}}
        return self.send(kind, {f"{kind}_input": {"loss_fn": "cross_entropy", "data": [
            {"model_input": {"chunks": [{"type": "encoded_text", "tokens": tokens[:-1]}]}, "loss_fn_inputs": inputs}]}})

    def step(self, number):
        """The step of this number, from 1: all that it does depends on that alone."""
        draw = random.Random(number)
        self.batch("forward_backward", [draw.randrange(3, 200) for _ in range(draw.randrange(6, 28))])
        self.send("optim_step", {"adam_params": {"learning_rate": 0.01}})

    def probe(self):
        return json.dumps(self.batch("forward", PROBE)["loss_fn_outputs"])

    def save(self, name):
        return self.send("save_weights", {"path": name})["path"]


class Expected:
    """What a service that nobody kills replies, computed as it is asked for."""

    def __init__(self, service):
        self.service, self.lock = service, threading.Lock()
        self.texts = {prompt: streamed(service, prompt) for prompt in PROMPTS}
        self.runs = [Run(service, adapters) for adapters in TENANTS]
        self.probes = [[run.probe()] for run in self.runs]

    def probe(self, tenant, step):
        with self.lock:
            known, run = self.probes[tenant], self.runs[tenant]
            while len(known) <= step:
                run.step(len(known))
                known.append(run.probe())
            return known[step]

    def job(self, folder):
        job = order(self.service, upload(self.service, ROWS.encode(), "reference"), "reference")
        found = awaited(self.service, job)
        if found["status"] != "succeeded":
            raise SystemExit(f"the job of the service that nobody kills: {found}")
        return bits(folder, job)


def awaited(service, job):
    begun = time.monotonic()
    while True:
        found = service.insist(f"/v1/fine_tuning/jobs/{job}")
        if found["status"] in ("succeeded", "failed", "cancelled"):
            return found
        if time.monotonic() - begun > 600:
            raise SystemExit(f"job {job} does not end: {found}")
        time.sleep(0.1)


def bits(folder, job):
    """The hash of the tensors that a job made."""
    connection = sqlite3.connect(f"file:{folder}/state.db?mode=ro", uri=True)
    (path,) = connection.execute("SELECT models.path FROM jobs JOIN models ON models.name = jobs.result WHERE jobs.id = ?", (job,)).fetchone()
    connection.close()
    content = (folder / path / "adapter_model.safetensors").read_bytes()
    return hashlib.sha256(content[8 + int.from_bytes(content[:8], "little"):]).hexdigest()


class Clients:
    """All that ask, and what was acknowledged to them."""

    def __init__(self, service, expected):
        self.service, self.expected = service, expected
        self.over, self.lock = threading.Event(), threading.Lock()
        self.files, self.jobs, self.checkpoints, self.texts, self.cuts = {}, [], [], 0, 0
        self.threads = [threading.Thread(target=self.guarded, args=(what, *given)) for what, *given in
                        [(self.read, 1), (self.read, 2), (self.upload,), (self.order,)] + [(self.train, i) for i in range(len(TENANTS))]]
        for thread in self.threads:
            thread.start()

    def guarded(self, what, *given):
        try:
            what(*given)
        except Exception as error:  # a client that ends early is a failure
            fail(f"{what.__name__}{given}: {type(error).__name__}: {error}")

    def close(self):
        self.over.set()
        for thread in self.threads:
            thread.join()

    def read(self, seed):
        draw = random.Random(seed)
        while not self.over.is_set():
            prompt = draw.choice(PROMPTS)
            try:
                found = streamed(self.service, prompt)
            except Lost:
                self.cuts += 1
                continue
            self.texts += 1
            if found != self.expected.texts[prompt]:
                fail(f"the text after {prompt!r} is {found!r}, wanted {self.expected.texts[prompt]!r}")

    def upload(self):
        number = 0
        while not self.over.is_set():
            number += 1
            content = (json.dumps({"prompt": "x" * random.Random(number).randrange(9000), "completion": str(number)}) + "\n").encode()
            file = self.repeated(upload, content, f"file {number}")
            with self.lock:
                self.files[file] = content
            time.sleep(0.05)

    def repeated(self, what, *given):
        """A request with a key, until it is acknowledged: done once, however often it is sent."""
        while True:
            try:
                return what(self.service, *given)
            except Lost:
                self.cuts += 1

    def order(self):
        file = self.repeated(upload, ROWS.encode(), "rows")
        number = 0
        while not self.over.is_set():
            number += 1
            job = self.repeated(order, file, f"job {number}")
            with self.lock:
                self.jobs.append(job)
            while not self.over.is_set():
                if self.service.insist(f"/v1/fine_tuning/jobs/{job}")["status"] not in ("validating_files", "queued", "running"):
                    break
                time.sleep(0.1)

    def train(self, tenant):
        step, checkpoint, life = 0, None, 0
        while not self.over.is_set():
            life += 1
            try:
                run = Run(self.service, TENANTS[tenant], checkpoint)
                found, wanted = run.probe(), self.expected.probe(tenant, step)
                if found != wanted:
                    fail(f"run {tenant} at step {step} from {checkpoint}: {found[:200]}, wanted {wanted[:200]}")
                at = step
                while not self.over.is_set():
                    at += 1
                    run.step(at)
                    if at % 2 == 0:
                        checkpoint = run.save(f"step-{at}")
                        step = at
                        with self.lock:
                            self.checkpoints.append((tenant, at, checkpoint))
                    if at % 40 == 0:  # from the beginning, so that the reference's work is bounded
                        step, checkpoint = 0, None
                        break
            except Lost:
                self.cuts += 1


def integrity(folder, scratch):
    """Looks at a copy, so that what the service finds is as the kill left it."""
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    for name in os.listdir(folder):
        if name.startswith("state.db"):
            shutil.copy(folder / name, scratch / name)
    connection = sqlite3.connect(scratch / "state.db")
    (said,) = connection.execute("PRAGMA integrity_check").fetchone()
    connection.close()
    return said


def check_all(service, clients, expected, folder, wanted_bits):
    for file, content in clients.files.items():
        if service.insist(f"/v1/files/{file}/content", raw=True) != content:
            fail(f"file {file}: other content")
    for job in clients.jobs:
        found = awaited(service, job)
        if found["status"] != "succeeded":
            fail(f"job {job}: {found}")
        elif bits(folder, job) != wanted_bits:
            fail(f"job {job}: other bits")
    draw = random.Random(0)
    for tenant, step, checkpoint in draw.sample(clients.checkpoints, min(30, len(clients.checkpoints))):
        if Run(service, TENANTS[tenant], checkpoint).probe() != expected.probe(tenant, step):
            fail(f"{checkpoint}: other values")
    known, offset = set(), 0
    while True:
        page = service.insist(f"/api/v1/checkpoints?limit=100&offset={offset}")["checkpoints"]
        known |= {each["tinker_path"] for each in page}
        offset += len(page)
        if not page:
            break
    for _, _, checkpoint in clients.checkpoints:
        if checkpoint not in known:
            fail(f"{checkpoint} is not listed")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--longest", type=float, default=6.0, help="seconds between a start and its kill, at most")
    parser.add_argument("--ready", type=float, help="seconds in which a start answers /health")
    given = parser.parse_args()
    build = given.build.resolve()
    work = build / "service" / "kills"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    draw = random.Random(given.seed)
    reference, service = Service(build, work / "reference"), Service(build, work / "state")
    reference.start()
    expected = Expected(reference)
    wanted_bits = expected.job(work / "reference")
    service.start()
    clients = Clients(service, expected)
    for number in range(given.kills):
        time.sleep(draw.uniform(0.02, given.longest))
        service.end(signal.SIGKILL)
        if (said := integrity(work / "state", work / "copy")) != "ok":
            fail(f"integrity_check after kill {number + 1}: {said}")
        service.start()
        if (number + 1) % 10 == 0:
            print(f"{number + 1} kills: {clients.texts} texts, {len(clients.files)} files, {len(clients.jobs)} jobs, {len(clients.checkpoints)} "
                  f"checkpoints acknowledged, {clients.cuts} requests cut", flush=True)
    clients.close()
    check_all(service, clients, expected, work / "state", wanted_bits)
    service.end(signal.SIGTERM)
    reference.end(signal.SIGTERM)
    starts = sorted(service.starts[1:])
    print(f"ready after a kill: median {starts[len(starts) // 2]:.2f} s, longest {starts[-1]:.2f} s")
    if given.ready and starts[-1] > given.ready:
        fail(f"a start took {starts[-1]:.2f} s, asked {given.ready}")
    for what, count in (("texts", clients.texts), ("files", len(clients.files)), ("jobs", len(clients.jobs)), ("checkpoints", len(clients.checkpoints)),
                        ("requests cut", clients.cuts)):
        if not count:
            fail(f"no {what}: this shows nothing")
    print(f"{given.kills} kills: {clients.texts} texts, {len(clients.files)} files, {len(clients.jobs)} jobs, {len(clients.checkpoints)} checkpoints "
          f"acknowledged, {clients.cuts} requests cut, {len(failures)} failures")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
