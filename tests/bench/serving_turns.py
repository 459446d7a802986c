#!/usr/bin/env python3
"""serving_turns.py BUILD MODEL [--turns 10] [--new 100]: what is not computed again.

A conversation of turns, each of NEW tokens of its user and NEW of the model: milliseconds to the first token of every turn; that of the last is
asked to be at most 1.3 times the first's, which has as many new tokens and no history. Then 16 requests that begin with the same 1,000 tokens
and arrive together: tokens computed, asked is 1,000 and the 16 ends. Exits with 1 where not."""
import argparse
import os
import random
import statistics
import sys
import time

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "reference"))
import tessera_c  # noqa: E402


def first_token(library, engine, ids, new):
    event, tokens, first = tessera_c.Event(), [], None
    begin = time.perf_counter()
    library.submit_tokens(engine, ids, library.options(max_tokens=new, temperature=0.0, ignore_eos=1))
    while True:
        library.next_event(engine, event)
        if event.kind == tessera_c.PENDING:
            return 1e3 * first, tokens
        if event.kind == tessera_c.TOKEN and event.token >= 0:
            first = first or time.perf_counter() - begin
            tokens.append(event.token)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build"), parser.add_argument("model"), parser.add_argument("--turns", type=int, default=10)
    parser.add_argument("--new", type=int, default=100), parser.add_argument("--conversations", type=int, default=5)
    args = parser.parse_args()
    library, rng = tessera_c.Library(args.build), random.Random(5)
    engine = library.engine(library.load(args.model), context=max(2 * args.turns * args.new, 1100), sequences=16, cache_tokens=8192)

    def random_ids(count):
        return [rng.randrange(3, 30000) for _ in range(count)]

    first_token(library, engine, random_ids(args.new), 2)  # warm
    times = []
    for _ in range(args.conversations):
        history, turns = [], []
        for _ in range(args.turns):
            history += random_ids(args.new)
            milliseconds, said = first_token(library, engine, history, args.new)
            turns.append(milliseconds)
            history += said
        times.append(turns)
    medians = [statistics.median(column) for column in zip(*times)]
    ratio = medians[-1] / medians[0]
    print("ms to the first token, by turn:", ", ".join(f"{it:.1f}" for it in medians))
    print(f"turn {args.turns} of {args.turns}: {ratio:.2f} of the first's, with {(2 * args.turns - 2) * args.new} tokens before it; asked at most 1.3")

    common, before = random_ids(1000), library.json("tsr_engine_report", engine)["tokens"]
    event, new = tessera_c.Event(), 3
    for _ in range(16):
        library.submit_tokens(engine, common + random_ids(10), library.options(max_tokens=new, temperature=0.0, ignore_eos=1))
    library.next_event(engine, event)
    while event.kind != tessera_c.PENDING:
        library.next_event(engine, event)
    computed = library.json("tsr_engine_report", engine)["tokens"] - before
    wanted = 1000 + 16 * (10 + new - 1)
    print(f"16 requests with 1,000 common tokens: {computed} tokens computed, asked at most {wanted}")
    sys.exit(0 if ratio <= 1.3 and computed <= wanted else 1)


main()
