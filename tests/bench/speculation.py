#!/usr/bin/env python3
"""speculation.py BUILD MODEL [--rounds 5] [--prompts 50]: an engine with speculation, against one without.

Greedy texts of 50 prompts, one and eight at a time, must be equal; so must sampled ones. Speed on texts that repeat themselves and
on random ones: generated tokens by the clock, alternately, medians; asked is at least 0.97 of the plain engine's. Exits with 1 where not."""
import argparse
import os
import random
import statistics
import sys

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "reference"))
import tessera_c  # noqa: E402


def prompt_of(rng, repeats):
    if repeats:
        period = [rng.randrange(3, 30000) for _ in range(rng.randint(4, 24))]
        return (period * 40)[:rng.randint(60, 120)]
    return [rng.randrange(3, 30000) for _ in range(rng.randint(60, 120))]


def serve(library, engine, prompts, new, **options):
    return library.serve(engine, prompts, lambda number: {"max_tokens": new, "seed": number, "ignore_eos": 1, **options})


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build"), parser.add_argument("model"), parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--prompts", type=int, default=50)
    args = parser.parse_args()
    library = tessera_c.Library(args.build)
    model = library.load(args.model)
    met = True
    for sequences in (1, 8):
        engines = {kind: library.engine(model, context=512, sequences=sequences, speculation=kind, prefix_cache=0) for kind in ("off", "ngram")}
        rng = random.Random(3)
        prompts = [prompt_of(rng, i % 2 == 0) for i in range(args.prompts)]
        for what, options in (("greedy", {"temperature": 0.0}), ("sampled", {"temperature": 0.8})):
            texts = [serve(library, engine, prompts, 48, **options)[0] for engine in engines.values()]
            met &= texts[0] == texts[1]
            print(f"{sequences} at a time, {what}: {sum(a == b for a, b in zip(*texts))} of {len(prompts)} texts equal")
        for what, repeats, options in (("repeating, greedy", True, {"temperature": 0.0}), ("random, sampled", False, {"temperature": 1.0})):
            speeds = {kind: [] for kind in engines}
            for turn in range(args.rounds + 1):
                prompts = [prompt_of(rng, repeats) for _ in range(2 * sequences)]
                for kind, engine in engines.items():
                    texts, seconds = serve(library, engine, prompts, 128, **options)
                    if turn > 0:
                        speeds[kind].append(sum(map(len, texts)) / seconds)
            off, on = (statistics.median(speeds[kind]) for kind in ("off", "ngram"))
            ratios = [a / b for a, b in zip(speeds["ngram"], speeds["off"])]
            met &= statistics.median(ratios) >= 0.97
            print(f"{sequences} at a time, {what}: {off:.1f} tokens/s without, {on:.1f} with: {statistics.median(ratios):.2f} (asked at least .97)", flush=True)
        report = library.json("tsr_engine_report", engines["ngram"])
        print(f"{sequences} at a time: {report['accepted']} of {report['speculated']} guesses came true, {report['steps']} steps")
    sys.exit(0 if met else 1)


main()
