#!/usr/bin/env python3
"""serving_load.py BUILD MODEL [--minutes 10] [--clients 32] [--sequences 8]: an engine under load of all kinds, watched.

Clients send random requests (lengths, priorities, samplers, several texts, log probabilities, grammars, common beginnings), a fifth of
which are cancelled at some time, some of which are wrong; the pool of keys and values is small, so that sequences give way to one
another. Every event is accounted for: each text of each request ends once, nothing comes after, wrong ones are refused. Prints tokens a second and
anonymous memory every half a minute; memory may grow by 2 % after the first fifth of the time. Exits with 1 where not. MODEL has a tokenizer."""
import argparse
import collections
import json
import os
import random
import sys
import time

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "reference"))
import tessera_c  # noqa: E402

SCHEMA = json.dumps({"type": "object", "properties": {"a": {"type": "integer", "minimum": 0, "maximum": 999}, "b": {"enum": ["x", "y"]}},
                     "required": ["a", "b"], "additionalProperties": False})


def anonymous():
    found = dict(line.split(":", 1) for line in open("/proc/self/status"))
    return int(found["RssAnon"].split()[0]) / 1024


def request_of(rng, common):
    ids = list(common[:rng.choice([0, 0, 40, 100, 200])]) + [rng.randrange(3, 30000) for _ in range(rng.randint(1, 120))]
    options = {"max_tokens": rng.randint(1, 80), "temperature": rng.choice([0.0, 0.7, 1.0]), "priority": rng.randrange(3)}
    if rng.random() < 0.2:
        options["top_k"] = 20
    if rng.random() < 0.2:
        options["repetition_penalty"] = 1.2
    if rng.random() < 0.1:
        options["logprobs"] = 5
    if rng.random() < 0.05:
        options["prompt_logprobs"] = 1
    if rng.random() < 0.1:
        options["n"] = rng.randint(2, 3)
    if rng.random() < 0.2:
        options.update(rng.choice([{"json_schema": SCHEMA}, {"regex": "[0-9]{2,6}(\\.[0-9]+)?"}, {"choices": '["yes","no","perhaps"]'}]))
    if rng.random() < 0.1:
        options["stop"] = "e"
    return ids, options


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build"), parser.add_argument("model"), parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--clients", type=int, default=32), parser.add_argument("--sequences", type=int, default=8)
    args = parser.parse_args()
    rng = random.Random(1)
    library = tessera_c.Library(args.build)
    engine = library.engine(library.load(args.model), context=512, sequences=args.sequences, cache_tokens=1024, speculation="ngram")
    common = [rng.randrange(3, 30000) for _ in range(200)]
    wanted, ended, counts, event = {}, collections.Counter(), collections.Counter(), tessera_c.Event()
    begin = shown = time.time()
    tokens = tokens_shown = 0
    memory = []
    while True:
        now = time.time()
        is_over = now > begin + 60 * args.minutes
        while not is_over and len(wanted) < args.clients:
            ids, options = request_of(rng, common)
            if rng.random() < 0.03:
                ids, options = rng.choice([([], {}), ([10**6], {}), ([1] * 600, {}), ([1], {"regex": "("}), ([1], {"top_p": 2.0})])
                try:
                    library.submit_tokens(engine, ids, library.options(**options))
                    raise SystemExit(f"{ids[:3]} {options} was taken")
                except tessera_c.Failed:
                    counts["refused"] += 1
                continue
            wanted[library.submit_tokens(engine, ids, library.options(**options))] = options.get("n", 1)
            counts["requests"] += 1
        if wanted and rng.random() < 0.003:
            library.c.tsr_engine_cancel.restype = None
            library.c.tsr_engine_cancel(library._argument(engine), library._argument(rng.choice(list(wanted))))
        if is_over and not wanted:
            break
        library.next_event(engine, event, 1.0)
        if event.kind == tessera_c.TOKEN:
            assert event.request in wanted and ended[event.request, event.index] == 0, "an event after the end"
            tokens += event.token >= 0
        elif event.kind == tessera_c.END:
            assert event.request in wanted and ended[event.request, event.index] == 0, "a second end"
            assert event.finish in (1, 2, 3), event.details
            counts[("", "length", "stop", "cancelled")[event.finish]] += 1
            ended[event.request, event.index] = 1
            wanted[event.request] -= 1
            if wanted[event.request] == 0:
                del wanted[event.request]
                for index in range(4):
                    ended.pop((event.request, index), None)
        if now - shown >= 30:
            memory.append(anonymous())
            print(f"{now - begin:6.0f} s  {(tokens - tokens_shown) / (now - shown):8.1f} tokens/s  {memory[-1]:8.1f} MiB  {dict(counts)}", flush=True)
            shown, tokens_shown = now, tokens
    report = library.json("tsr_engine_report", engine)
    print({key: report[key] for key in ("requests", "steps", "tokens", "cached_tokens", "generated", "preemptions", "speculated", "accepted",
                                        "running", "waiting", "cache_tokens", "free_cache_tokens")})
    assert report["running"] == report["waiting"] == 0 and report["free_cache_tokens"] == report["cache_tokens"], "pages are lost"
    assert report["generated"] == tokens and report["preemptions"] > 0
    growth = memory[-1] / memory[len(memory) // 5] - 1 if len(memory) > 4 else 0
    print(f"memory after the first fifth: {100 * growth:+.2f} %, asked at most 2")
    sys.exit(0 if growth <= 0.02 else 1)


main()
