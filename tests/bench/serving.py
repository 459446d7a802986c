#!/usr/bin/env python3
"""serving.py BUILD [--model 134M|1.1B] [--types F32,Q8_0,Q4_K_M] [--clients 1,4,16,64] [--rounds 3]: many clients, against llama.cpp.

Each client sends a random prompt of 128 tokens, takes 128 new ones, and sends its next: to a tsr_engine; to llama.cpp's batched decoding as
its examples/parallel drives it (a batch of the last token of every sequence, and of whole prompts for clients that are free), by the faster of
its two layouts of keys and values; and to our generator, one request after another. All read the same file (random_llamas.py), with the same
threads, alternately, in processes of their own. Medians of rounds: generated tokens by the clock, prompts included; milliseconds until the
first token and between two (median, 95th, 99th percentile); anonymous memory since the model was opened against what the engine's report
predicts, which is no less: buffers for log probabilities of prompts are not written to here. Last, what is asked, met or missed.
Needs llama-cpp-python, built with its native flags, gguf and numpy (PyPI)."""
import argparse
import ctypes
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time

from random_llamas import THREADS, quantize, random_llama

HERE = sys.path.pop(0)  # llama_cpp.py there has the name of a module that is imported
sys.path.append(os.path.join(HERE, "..", "reference"))

PROMPT, NEW = 128, 128
ASKED_AGAINST_LLAMA, ASKED_CLIENTS, ASKED_AGAINST_ONE, ASKED_MEMORY = 1.3, 16, {"F32": 4, "Q8_0": 3, "Q4_K_M": 3}, 0.02
MIB = 1 << 20


def prompt(number):
    draw = random.Random(number)
    return [draw.randrange(30000) for _ in range(PROMPT)]


def resident():
    """Anonymous bytes of this process, and all, without what was given back to the heap."""
    ctypes.CDLL(None).malloc_trim(0)
    found = dict(line.split(":", 1) for line in open("/proc/self/status"))
    return tuple(int(found[key].split()[0]) * 1024 for key in ("RssAnon", "VmRSS"))


class Times:
    """When each request was sent, and its tokens came."""

    def __init__(self):
        self.last, self.first, self.between, self.tokens = {}, [], [], 0

    def send(self, request):
        self.last[request] = (time.perf_counter(), False)

    def token(self, request):
        now = time.perf_counter()
        then, has_token = self.last[request]
        (self.between if has_token else self.first).append(now - then)
        self.last[request] = (now, True)
        self.tokens += 1

    def result(self, seconds, **more):
        def percentiles(values):
            values = sorted(values) or [0]
            return [1e3 * values[max(1, -(-len(values) * share // 100)) - 1] for share in (50, 95, 99)]
        return {"tokens_per_second": self.tokens / seconds, "first": percentiles(self.first), "between": percentiles(self.between), **more}


def run_engine(build, path, clients, requests):
    import tessera_c
    library = tessera_c.Library(build)
    model = library.load(path)
    before = resident()[0]
    engine = library.engine(model, context=PROMPT + NEW, sequences=clients)
    event = tessera_c.Event()

    def serve(count, new, first):
        options = library.options(max_tokens=new, temperature=0.0, ignore_eos=1)
        times, sent, open_requests = Times(), 0, 0
        begin = time.perf_counter()
        while sent < count or open_requests:
            while sent < count and open_requests < clients:
                times.send(library.submit_tokens(engine, prompt(first + sent), options))
                sent, open_requests = sent + 1, open_requests + 1
            library.next_event(engine, event)
            if event.kind == tessera_c.TOKEN and event.token >= 0:
                times.token(event.request)
            elif event.kind == tessera_c.END:
                assert event.finish == 1, event.details
                open_requests -= 1
        return times, time.perf_counter() - begin

    serve(clients, 4, 1000000)  # warm
    times, seconds = serve(requests, NEW, 0)
    report = library.json("tsr_engine_report", engine)
    # Weights that lie in the file are not anonymous.
    own = sum(it["arena_bytes"]["predicted"] - it.get("shared_weight_bytes", 0) + it.get("copied_weight_bytes", 0) for it in report["devices"])
    assert report["cached_tokens"] == 0 and times.tokens == requests * NEW
    return times.result(seconds, predicted=own, anonymous=resident()[0] - before, resident=resident()[1])


def run_one(build, path, _, requests):
    """A generator, one request after another."""
    import tessera_c
    library = tessera_c.Library(build)
    model = library.load(path)
    before = resident()[0]
    generator = library.generator(model, context=PROMPT + NEW)
    piece = tessera_c.Piece(ctypes.sizeof(tessera_c.Piece))

    def generate(number, new, times):
        ids = prompt(number)
        options = library.options(max_tokens=new)
        times.send(number)
        library.call("tsr_generator_start_tokens_with", generator, options, (ctypes.c_int32 * len(ids))(*ids), ctypes.c_size_t(len(ids)))
        while True:
            library.call("tsr_generator_next", generator, -1.0, ctypes.byref(piece))
            if piece.kind == 2:
                return
            if piece.token >= 0:
                times.token(number)

    generate(1000000, 4, Times())  # warm
    times, begin = Times(), time.perf_counter()
    for number in range(requests):
        generate(number, NEW, times)
    seconds = time.perf_counter() - begin
    report = library.json("tsr_generator_report", generator)
    own = sum(it["arena_bytes"]["predicted"] - it.get("shared_weight_bytes", 0) + it.get("copied_weight_bytes", 0) for it in report["devices"])
    assert times.tokens == requests * NEW, times.tokens
    return times.result(seconds, predicted=own, anonymous=resident()[0] - before, resident=resident()[1])


def run_llama(path, clients, requests, unified):
    import llama_cpp as ll
    import numpy as np
    quiet = ll.llama_log_callback(lambda level, text, data: None)
    ll.llama_log_set(quiet, None)
    before = resident()[0]
    parameters = ll.llama_model_default_params()
    parameters.n_gpu_layers = 0
    model = ll.llama_model_load_from_file(path.encode(), parameters)
    settings = ll.llama_context_default_params()
    settings.n_ctx, settings.n_seq_max, settings.kv_unified = clients * (PROMPT + NEW), clients, unified
    settings.n_batch, settings.n_ubatch = 2048, 512  # its defaults
    settings.n_threads = settings.n_threads_batch = THREADS
    context = ll.llama_init_from_model(model, settings)
    memory = ll.llama_get_memory(context)
    vocabulary = ll.llama_vocab_n_tokens(ll.llama_model_get_vocab(model))
    batch = ll.llama_batch_init(clients * PROMPT, 0, 1)

    def add(token, position, sequence, wants_logits):
        i = batch.n_tokens
        batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.logits[i] = token, position, 1, wants_logits
        batch.seq_id[i][0] = sequence
        batch.n_tokens = i + 1
        return i

    def serve(count, new, first):
        times, sent = Times(), 0
        slots = [None] * clients  # request, position, last token, tokens left
        begin = time.perf_counter()
        while True:
            batch.n_tokens, wanted = 0, {}
            for slot, it in enumerate(slots):
                if it:
                    wanted[add(it[2], it[1], slot, 1)] = slot
                    it[1] += 1
            for slot, it in enumerate(slots):
                if it or sent == count:
                    continue
                times.send(first + sent)
                ids = prompt(first + sent)
                for position, token in enumerate(ids):
                    last = add(token, position, slot, position == PROMPT - 1)
                slots[slot] = [first + sent, PROMPT, 0, new]
                wanted[last] = slot
                sent += 1
            if batch.n_tokens == 0:
                return times, time.perf_counter() - begin
            for start in range(0, batch.n_tokens, settings.n_batch):  # views of the batch
                size = min(settings.n_batch, batch.n_tokens - start)

                def moved(pointer):
                    kind = type(pointer)
                    return ctypes.cast(ctypes.addressof(pointer.contents) + start * ctypes.sizeof(pointer._type_), kind)

                view = ll.llama_batch(size, moved(batch.token), None, moved(batch.pos), moved(batch.n_seq_id), moved(batch.seq_id), moved(batch.logits))
                assert ll.llama_decode(context, view) == 0
                for i, slot in wanted.items():
                    if not start <= i < start + size:
                        continue
                    it = slots[slot]
                    it[2] = int(np.ctypeslib.as_array(ll.llama_get_logits_ith(context, i - start), (vocabulary,)).argmax())
                    times.token(it[0])
                    it[3] -= 1
                    if it[3] == 0:
                        ll.llama_memory_seq_rm(memory, slot, -1, -1)
                        slots[slot] = None

    serve(clients, 4, 1000000)  # warm
    ll.llama_memory_clear(memory, True)
    times, seconds = serve(requests, NEW, 0)
    assert times.tokens == requests * NEW
    return times.result(seconds, anonymous=resident()[0] - before, resident=resident()[1])


SIDES = {"ours": run_engine, "one": run_one,
         "llama": lambda build, path, clients, requests: run_llama(path, clients, requests, False),
         "llama-unified": lambda build, path, clients, requests: run_llama(path, clients, requests, True)}


def median_of(results):
    """Of each number."""
    def of(values):
        return [of(column) for column in zip(*values)] if isinstance(values[0], list) else statistics.median(values)
    return {key: of([it[key] for it in results]) for key in results[0]}


def verdict(what, found, asked, met):
    print(f"{what}: {found}, asked {asked}: {'met' if met else 'missed'}", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build"), parser.add_argument("--model", default="134M"), parser.add_argument("--types", default="F32,Q8_0,Q4_K_M")
    parser.add_argument("--clients", default="1,4,16,64"), parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--per-client", type=int, default=2, help="requests of each client; four at least in all")
    parser.add_argument("--files", help="folder in which the models are kept, for further runs")
    parser.add_argument("--side"), parser.add_argument("--file"), parser.add_argument("--requests", type=int)
    args = parser.parse_args()
    if args.side:
        return print(json.dumps(SIDES[args.side](args.build, args.file, int(args.clients), args.requests)))
    counts = [int(count) for count in args.clients.split(",")]
    cpu = next(line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name"))
    print(f"{cpu}, {THREADS} threads, {args.model}, {args.rounds} rounds, prompts of {PROMPT} tokens, {NEW} new")
    print("type | clients | tokens/s: ours, llama.cpp, ratio; one at a time, ratio | ms to the first token: ours; llama.cpp | "
          "ms between tokens: ours; llama.cpp | anonymous MiB: ours, predicted, ratio; llama.cpp", flush=True)
    asked = []
    with tempfile.TemporaryDirectory() as folder:
        folder = args.files or folder
        source = os.path.join(folder, "f32.gguf")
        if not os.path.exists(source):
            random_llama(source, args.model)
        for kind in args.types.split(","):
            path = source if kind == "F32" else os.path.join(folder, f"{kind}.gguf")
            if not os.path.exists(path):
                quantize(source, path, kind)

            def measure(side, clients):
                requests = 4 if side == "one" else max(4, args.per_client * clients)
                out = subprocess.run([sys.executable, __file__, args.build, "--side", side, "--file", path, "--clients", str(clients),
                                      "--requests", str(requests)], check=True, stdout=subprocess.PIPE, text=True).stdout
                return json.loads(out.splitlines()[-1])

            found = {clients: {side: [] for side in SIDES} for clients in counts}
            ones = []
            for _ in range(args.rounds):
                ones.append(measure("one", 1))
                for clients in counts:
                    for side in ("ours", "llama", "llama-unified"):
                        if side == "llama-unified" and clients > 16:
                            continue  # there every token attends to the cells of all clients
                        found[clients][side].append(measure(side, clients))
            if not args.files and path != source:
                os.remove(path)
            one = median_of(ones)
            for clients in counts:
                ours = median_of(found[clients]["ours"])
                theirs = max((median_of(found[clients][side]) for side in ("llama", "llama-unified") if found[clients][side]),
                             key=lambda it: it["tokens_per_second"])
                speeds = [it["tokens_per_second"] for it in (ours, theirs, one)]
                memory = ours["anonymous"] / ours["predicted"]

                def times(key):
                    return "; ".join(", ".join(f"{it:.1f}" for it in side[key]) for side in (ours, theirs))

                print(f"{kind} | {clients} | {speeds[0]:.1f}, {speeds[1]:.1f}, {speeds[0] / speeds[1]:.2f}; {speeds[2]:.1f}, {speeds[0] / speeds[2]:.2f} | "
                      f"{times('first')} | {times('between')} | {ours['anonymous'] / MIB:.1f}, {ours['predicted'] / MIB:.1f}, {memory:.3f}; "
                      f"{theirs['anonymous'] / MIB:.1f}", flush=True)
                asked.append((f"{kind}, {clients} clients: memory against the report", f"{memory:.3f}", f"at most {1 + ASKED_MEMORY}", memory <= 1 + ASKED_MEMORY))
                if clients == ASKED_CLIENTS:
                    asked.append((f"{kind}, {clients} clients: against llama.cpp", f"{speeds[0] / speeds[1]:.2f}", f"{ASKED_AGAINST_LLAMA}",
                                  speeds[0] >= ASKED_AGAINST_LLAMA * speeds[1]))
                    if kind in ASKED_AGAINST_ONE:
                        asked.append((f"{kind}, {clients} clients: against one at a time", f"{speeds[0] / speeds[2]:.2f}", f"{ASKED_AGAINST_ONE[kind]}",
                                      speeds[0] >= ASKED_AGAINST_ONE[kind] * speeds[2]))
            print(f"{kind} | one at a time | {one['tokens_per_second']:.1f} | {', '.join(f'{it:.1f}' for it in one['first'])} | "
                  f"{', '.join(f'{it:.1f}' for it in one['between'])} | {one['anonymous'] / MIB:.1f}, {one['predicted'] / MIB:.1f}, "
                  f"{one['anonymous'] / one['predicted']:.3f}", flush=True)
    for line in asked:
        verdict(*line)


main()
