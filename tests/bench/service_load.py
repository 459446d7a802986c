#!/usr/bin/env python3
"""service_load.py BUILD [--minutes 5] [--rounds 3] [--parts load,stamps,memory,jobs]: `tessera serve` under load, against the engine alone.

load: 64 clients stream texts of a random llama of 134 M parameters in Q8_0 from tessera-serve, then `tessera bench --mode serve` computes as
many in one process, in turn. Prints tokens a second, their ratio as it is and with the CPU share of those who ask (the generator; the main
thread of bench) taken off both, and CPU seconds a token. stamps: 1 and 8 clients, and the times between a request's last byte and the
engine and between an event and its write, by the stamps in the service. memory: of the service without models, and of an open stream.
jobs: as load, while the service has two fine-tuning jobs of the model (one runs, one waits for it), for each share of the cores in --shares.
The generator is tests/service/traffic/load (Go). Exits with 1 where a figure misses what is asked."""
import argparse
import json
import os
import pathlib
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
LAYERS, WIDTH, HEADS, KV, HIDDEN, VOCABULARY = 30, 576, 9, 3, 1536, 49152
CORES, TICK = len(os.sched_getaffinity(0)), os.sysconf("SC_CLK_TCK")
ASKED_SPEED, ASKED_CPU, ASKED_BESIDE_JOBS = 0.95, 1.05, 0.9
ASKED_DELAYS = {"p50": 2.0, "p99": 10.0}
ASKED_MEMORY, ASKED_STREAM = 64 << 20, 64 << 10
STREAMS = 1000
missed = []


def verdict(what, found, asked, met):
    print(f"{what}: {found}, asked {asked}: {'met' if met else 'missed'}", flush=True)
    if not met:
        missed.append(what)


def tokenizer(path):
    """A vocabulary in which every token is a word, so that every token is an event."""
    import gguf
    writer = gguf.GGUFWriter(path, "llama")
    tokens = ["<unk>", "<s>", "</s>"] + [f"<0x{byte:02X}>" for byte in range(256)]
    tokens += [f"\u2581w{i}" for i in range(VOCABULARY - len(tokens))]
    kinds = gguf.TokenType
    types = [kinds.UNKNOWN, kinds.CONTROL, kinds.CONTROL] + [kinds.BYTE] * 256
    types += [kinds.NORMAL] * (VOCABULARY - len(types))
    writer.add_tokenizer_model("llama"), writer.add_token_list(tokens), writer.add_token_types(types)
    writer.add_token_scores([-float(i) for i in range(VOCABULARY)])
    writer.add_bos_token_id(1), writer.add_eos_token_id(2), writer.add_unk_token_id(0)
    writer.write_header_to_file(), writer.write_kv_data_to_file(), writer.write_tensors_to_file()
    writer.close()


def make_model(tessera, folder):
    path = folder / "random.tsr"
    if not path.exists():
        words = folder / "words.gguf"
        tokenizer(str(words))
        sizes = f"llama:L={LAYERS},C={WIDTH},H={HEADS},KV={KV},F={HIDDEN},V={VOCABULARY},T=2048"
        subprocess.run([tessera, "new", sizes, "--tokenizer", words, "-o", path], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return path


class Service:
    """tessera-serve on a free port."""

    def __init__(self, program, model, folder, *options):
        self.log = folder / "service.log"
        with open(self.log, "w") as log:
            self.process = subprocess.Popen([program, model, "--port", "0", "--weights", "q8_0", "--devices", "cpu:1", *options], stderr=log)
        while '"serving"' not in (text := self.log.read_text()):
            if self.process.poll() is not None:
                raise SystemExit(f"tessera-serve ended with {self.process.returncode}: {text}")
            time.sleep(0.05)
        self.address = json.loads(next(line for line in text.splitlines() if '"serving"' in line))["url"].split("//")[1]

    def memory(self, field):
        return int(re.search(rf"{field}:\s+(\d+) kB", pathlib.Path(f"/proc/{self.process.pid}/status").read_text())[1]) << 10

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        if self.process.wait(timeout=120) != 0:
            raise SystemExit(f"tessera-serve ended with {self.process.returncode}, wanted 0; see {self.log}")


def generate(generator, service, clients, *options):
    out = subprocess.run([generator, "--address", service.address, "--model", "random", "--pid", str(service.process.pid), "--clients", str(clients),
                          "--json", *map(str, options)], check=True, stdout=subprocess.PIPE, text=True).stdout
    found = json.loads(out)
    if found.get("errors", 0):
        raise SystemExit(f"{found['errors']} of {found['requests']} requests failed")
    return found


def cpu_seconds(path):
    fields = pathlib.Path(path).read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICK


def bench(tessera, model, clients, requests, prompt, new):
    """bench's own result, with the CPU seconds of its process and of its main thread, which is the clients, in the time that it measured."""
    process = subprocess.Popen([tessera, "bench", model, "--mode", "serve", "--weights", "q8_0", "--devices", "cpu:1", "--clients", str(clients), "--prompt",
                                str(prompt), "--new", str(new), "--requests", str(requests), "--json"], stdout=subprocess.PIPE, text=True)
    samples = []

    def sample():
        while True:
            try:
                whole, main = (cpu_seconds(f"/proc/{process.pid}/{of}stat") for of in ("", f"task/{process.pid}/"))
            except (OSError, IndexError):
                return
            samples.append((time.monotonic(), whole, main))
            time.sleep(0.05)

    sampler = threading.Thread(target=sample, daemon=True)
    sampler.start()
    out = process.stdout.read()
    end = time.monotonic()
    if process.wait() != 0:
        raise SystemExit(f"tessera bench ended with {process.returncode}")
    sampler.join()
    found = json.loads(out.splitlines()[-1])
    samples = [each for each in samples if each[0] <= end]
    begin = min(samples, key=lambda each: abs(each[0] - (end - found["seconds"])))
    took = samples[-1][0] - begin[0]
    cpu, main = samples[-1][1] - begin[1], samples[-1][2] - begin[2]
    tokens_per_second = found["tokens_per_second"]
    return {"tokens_per_second": tokens_per_second, "cpu": cpu / took / tokens_per_second, "clients_cores": main / took}


def compare(args, tessera, generator, service, model):
    shape = ("--prompt", args.prompt, "--new", args.new)
    first = generate(generator, service, args.clients, "--minutes", args.minutes, *shape)
    requests = -(-first["requests"] // args.clients) * args.clients
    print(f"{args.clients} clients, {requests} requests of {args.prompt} + {args.new} tokens, {CORES} cores")
    print("round | service: tokens/s, CPU ms a token, generator's cores | bench: tokens/s, CPU ms a token, clients' cores | speed: ratio, with these cores "
          "taken off | CPU a token: ratio", flush=True)
    ratios, cpus = [], []
    for i in range(args.rounds):
        ours = generate(generator, service, args.clients, "--requests", requests, *shape)
        engine = bench(tessera, model, args.clients, requests, args.prompt, args.new)
        ratio = ours["tokens_per_second"] / engine["tokens_per_second"]
        ratios.append(ratio * (CORES - engine["clients_cores"]) / (CORES - ours["generator_cores"]))
        cpus.append(ours["server_cpu_seconds_per_token"] / engine["cpu"])
        print(f"{i + 1} | {ours['tokens_per_second']:.1f}, {1e3 * ours['server_cpu_seconds_per_token']:.3f}, {ours['generator_cores']:.3f} | "
              f"{engine['tokens_per_second']:.1f}, {1e3 * engine['cpu']:.3f}, {engine['clients_cores']:.3f} | {ratio:.3f}, {ratios[-1]:.3f} | {cpus[-1]:.3f}")
        print(f"  first event {ours['first_event_milliseconds']['p50']:.1f} ms p50, {ours['first_event_milliseconds']['p99']:.1f} p99; between events "
              f"{ours['between_events_milliseconds']['p50']:.1f}, {ours['between_events_milliseconds']['p99']:.1f}", flush=True)
    verdict("speed against bench, median", f"{statistics.median(ratios):.3f}", f"at least {ASKED_SPEED}", statistics.median(ratios) >= ASKED_SPEED)
    verdict("CPU seconds a token against bench, median", f"{statistics.median(cpus):.3f}", f"at most {ASKED_CPU}", statistics.median(cpus) <= ASKED_CPU)


def stamps(args, generator, service):
    for clients in (1, 8):
        found = generate(generator, service, clients, "--minutes", args.minutes, "--prompt", args.prompt, "--new", args.new)
        for name, what in (("submit", "last byte read to the engine"), ("write", "event to its write"), ("first_token", "first token in the engine to its write")):
            times = found[f"service_{name}_milliseconds"]
            verdict(f"{clients} clients, {what}", f"at most {times['p50']:g} ms p50, {times['p99']:g} ms p99", "2 and 10",
                    all(0 < times[key] <= asked for key, asked in ASKED_DELAYS.items()))


def ask(service, path, body=None, kind="application/json"):
    request = urllib.request.Request(f"http://{service.address}{path}", body, {"Content-Type": kind} if body else {})
    with urllib.request.urlopen(request, timeout=120) as reply:
        return reply.read().decode()


def begin_job(service, file):
    wanted = {"model": "random", "training_file": file, "hyperparameters": {"n_epochs": 50, "batch_size": 8}}
    return json.loads(ask(service, "/v1/fine_tuning/jobs", json.dumps(wanted).encode()))["id"]


def upload_rows(service):
    words = iter(range(1 << 20))
    text = lambda: " ".join(f"w{next(words) % 40000}" for _ in range(48))
    rows = "".join(json.dumps({"prompt": text(), "completion": text()}) + "\n" for _ in range(512))
    edge = "rows-of-a-job"
    parts = [f'--{edge}\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nfine-tune\r\n',
             f'--{edge}\r\nContent-Disposition: form-data; name="file"; filename="rows.jsonl"\r\n\r\n{rows}\r\n--{edge}--\r\n']
    return json.loads(ask(service, "/v1/files", "".join(parts).encode(), f"multipart/form-data; boundary={edge}"))["id"]


def core_seconds(service):
    found = dict(re.findall(r'core_share_seconds_total\{side="(\w+)"\} ([0-9.e+-]+)', ask(service, "/metrics")))
    return {side: float(found.get(side, 0)) for side in ("inference", "training")}


def beside_jobs(args, tessera, generator, service, share):
    """The speed beside jobs as a part of the speed that bench has alone; and what its share of the cores leaves of that."""
    shape = ("--prompt", args.prompt, "--new", args.new)
    generate(generator, service, args.clients, "--minutes", 0.5, *shape)  # the model is loaded, and warm
    file = upload_rows(service)
    jobs = [begin_job(service, file) for _ in range(2)]
    while core_seconds(service)["training"] == 0:
        if (job := json.loads(ask(service, f"/v1/fine_tuning/jobs/{jobs[0]}")))["status"] == "failed":
            raise SystemExit(f"the job failed: {job['error']['message']}")
        time.sleep(0.2)
    before = core_seconds(service)
    ours = generate(generator, service, args.clients, "--minutes", args.minutes, *shape)
    after = core_seconds(service)
    states = [json.loads(ask(service, f"/v1/fine_tuning/jobs/{job}"))["status"] for job in jobs]
    if states != ["running", "queued"]:
        raise SystemExit(f"the jobs are {states} after the load, wanted one that runs and one that waits; more epochs?")
    for job in reversed(jobs):
        ask(service, f"/v1/fine_tuning/jobs/{job}/cancel", b"{}")
    while any(json.loads(ask(service, f"/v1/fine_tuning/jobs/{job}"))["status"] in ("running", "queued") for job in jobs):
        time.sleep(0.2)
    requests = -(-ours["requests"] // args.clients) * args.clients
    engine = bench(tessera, args.files / "random.tsr", args.clients, requests, args.prompt, args.new)
    ratio = ours["tokens_per_second"] / engine["tokens_per_second"] * (CORES - engine["clients_cores"]) / (CORES - ours["generator_cores"])
    spent = {side: after[side] - before[side] for side in after}
    had = spent["inference"] / max(sum(spent.values()), 1e-9)
    print(f"--inference-share {share}, two jobs: {ours['tokens_per_second']:.1f} tokens/s, bench alone {engine['tokens_per_second']:.1f}; requests had {had:.3f} of "
          f"the time in turns; first event {ours['first_event_milliseconds']['p50']:.1f} ms p50, {ours['first_event_milliseconds']['p99']:.1f} p99", flush=True)
    verdict(f"speed beside two jobs against bench, share {share}", f"{ratio:.3f}, {ratio / share:.3f} of its share", f"at least {ASKED_BESIDE_JOBS} of its share",
            ratio / share >= ASKED_BESIDE_JOBS)


def memory(args, generator, service):
    found = generate(generator, service, args.clients, "--hold", STREAMS, "--prompt", args.prompt, "--new", args.new)
    print(f"{STREAMS} streams: {found['anonymous_bytes_before'] >> 20} MiB anonymous before, {found['anonymous_bytes_open'] >> 20} open, "
          f"{found['anonymous_bytes_after'] >> 20} after")
    verdict("memory of a stream", f"{found['bytes_per_stream'] / 1024:.1f} KiB", "at most 64 KiB", found["bytes_per_stream"] <= ASKED_STREAM)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path), parser.add_argument("--parts", default="load,stamps,memory")
    parser.add_argument("--minutes", type=float, default=5), parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--clients", type=int, default=64), parser.add_argument("--prompt", type=int, default=128), parser.add_argument("--new", type=int, default=128)
    parser.add_argument("--shares", default="0.8,1", help="of the cores for requests, of part jobs")
    parser.add_argument("--files", type=pathlib.Path, help="folder in which the model is kept, for further runs")
    parser.add_argument("--tessera", type=pathlib.Path, help="in place of BUILD/cli/tessera"), parser.add_argument("--serve", type=pathlib.Path)
    args = parser.parse_args()
    tessera, program = args.tessera or args.build / "cli/tessera", args.serve or args.build / "cli/tessera-serve"
    parts = set(args.parts.split(","))
    if strange := parts - {"load", "stamps", "memory", "jobs"}:
        parser.error(f"--parts: found {', '.join(strange)}, wanted load, stamps, memory and jobs")
    is_kept, args.files = args.files is not None, args.files or pathlib.Path(tempfile.mkdtemp())
    folder = args.files
    folder.mkdir(parents=True, exist_ok=True)
    try:
        generator, model = folder / "load", make_model(tessera, folder)
        subprocess.run(["go", "build", "-o", generator.resolve(), "./load"], cwd=HERE.parent / "service/traffic", check=True, env=dict(os.environ, GOFLAGS=""))
        # The engine that bench makes: as many sequences as clients, none of them with an adapter.
        alike = ["--context", str(args.prompt + args.new), "--sequences", str(args.clients), "--adapters", "0"]
        for share in map(float, args.shares.split(",") if "jobs" in parts else ()):
            with tempfile.TemporaryDirectory() as state, \
                    Service(program, model, folder, *alike, "--state", state, "--inference-share", str(share)) as service:
                beside_jobs(args, tessera, generator, service, share)
        with Service(program, model, folder, *alike) as service:
            if "memory" in parts:
                verdict("memory without models", f"{service.memory('VmRSS') / (1 << 20):.1f} MiB, {service.memory('RssAnon') / (1 << 20):.1f} anonymous", "at most 64 MiB",
                        service.memory("VmRSS") <= ASKED_MEMORY)
                memory(args, generator, service)
            if "load" in parts:
                compare(args, tessera, generator, service, model)
            if "stamps" in parts:
                stamps(args, generator, service)
    finally:
        if not is_kept:
            shutil.rmtree(folder)
    sys.exit(bool(missed))


main()
