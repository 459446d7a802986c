#!/usr/bin/env python3
"""serving_adapters.py BUILD [--model llama:...] [--types F32,Q8_0,Q4_K_M] [--adapter-types f32,bf16] [--clients 16,100] [--adapters 100] [--rounds 5]

An engine whose requests have adapters of rank 16, a hundred that take turns, each in a slot of its own as far as there are as many
slots as clients, against one over the same weights without: every client sends a random prompt of 128 tokens and takes 128 new ones. Generated
tokens by the clock, prompts included, alternately; medians of rounds, and of their ratios. Asked is at least 0.7 over an f32 base, with factors of
f32; exits with 1 where not. Bytes: of the adapters that a full step reads, and those of the weights. The adapters are one, loaded many times."""
import argparse
import os
import random
import statistics
import sys
import tempfile

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "reference"))
import numpy as np  # noqa: E402
import tessera_c  # noqa: E402

ASKED, MIB = 0.7, 1 << 20


def random_adapter(library, model, rank, folder):
    """A PEFT folder, and how many numbers are in it."""
    adapted = library.make("model", "tsr_model_add_adapters", model, library.options(rank=rank))
    rng, count = np.random.default_rng(3), 0
    for name in library.parameter_names(adapted):
        if name.endswith((".lora_a", ".lora_b")):
            shape = library.array(library.make("tensor", "tsr_model_read", adapted, name)).shape
            library.call("tsr_model_write", adapted, name, library.tensor(np.float32(0.01) * rng.standard_normal(shape, np.float32)))
            count += int(np.prod(shape))
    library.export(adapted, folder, format="peft")
    return count


def weights_of(library, model, kind, folder):
    if kind == "F32":
        return model
    path = os.path.join(folder, kind + ".tsr")
    library.call("tsr_model_quantize", None, model, path, library.options(type=kind.lower()), None)
    return library.load(path)


def load_adapters(library, engine, path, count):
    numbers = []
    for _ in range(count):
        number = tessera_c.ctypes.c_int64()
        library.call("tsr_engine_load_adapter", engine, path, tessera_c.ctypes.byref(number))
        numbers.append(number.value)
    return numbers


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build"), parser.add_argument("--model", default="llama:L=30,C=576,H=9,KV=3,F=1536,V=49152,T=2048")
    parser.add_argument("--types", default="F32,Q8_0,Q4_K_M"), parser.add_argument("--adapter-types", default="f32,bf16")
    parser.add_argument("--clients", default="16,100"), parser.add_argument("--adapters", type=int, default=100)
    parser.add_argument("--rank", type=int, default=16), parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--prompt", type=int, default=128), parser.add_argument("--new", type=int, default=128)
    args = parser.parse_args()
    library, rng, met = tessera_c.Library(args.build), random.Random(7), True
    print(f"{args.model}, {args.adapters} adapters of rank {args.rank}, {args.rounds} rounds, prompts of {args.prompt} tokens, {args.new} new")
    print("weights | factors | clients | tokens/s: without, with, ratio | MiB a step: adapters, weights", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        base, path = library.make("model", "tsr_model_new", args.model, None), os.path.join(folder, "adapter")
        vocabulary = next(it["shape"][0] for it in library.json("tsr_model_info", base)["tensors"] if it["name"].startswith("token_embedding"))
        numbers_of_one = random_adapter(library, base, args.rank, path)
        for kind in args.types.split(","):
            model = weights_of(library, base, kind, folder)
            weights = library.json("tsr_model_info", model)["parameter_bytes"]
            for factors in args.adapter_types.split(","):
                for clients in map(int, args.clients.split(",")):
                    settings = {"context": args.prompt + args.new, "sequences": clients, "prefix_cache": 0}
                    slots = min(clients, args.adapters)
                    plain = library.engine(model, **settings)
                    mixed = library.engine(model, adapters=slots, adapter_rank=args.rank, adapter_type=factors, **settings)
                    adapters = load_adapters(library, mixed, path, args.adapters)

                    def speed(engine, prompts, new, first):
                        def options(number):
                            own = {} if engine is plain else {"adapter": adapters[(first + number) % len(adapters)]}
                            return {"max_tokens": new, "temperature": 0.0, "ignore_eos": 1, **own}
                        texts, seconds = library.serve(engine, prompts, options)
                        assert all(len(text) == new for text in texts), [len(text) for text in texts]
                        return sum(map(len, texts)) / seconds

                    speeds = []
                    for turn in range(args.rounds + 1):  # the first warms
                        prompts = [[rng.randrange(vocabulary) for _ in range(args.prompt)] for _ in range(clients)]
                        speeds.append([speed(engine, prompts, args.new if turn else 4, turn * clients) for engine in (plain, mixed)])
                    without, with_adapters = map(statistics.median, zip(*speeds[1:]))
                    ratio = statistics.median(b / a for a, b in speeds[1:])
                    bytes_of_one = numbers_of_one * (4 if factors == "f32" else 2)
                    is_asked = kind == "F32" and factors == "f32"
                    met &= ratio >= ASKED or not is_asked
                    print(f"{kind} | {factors} | {clients} | {without:.1f}, {with_adapters:.1f}, {ratio:.2f}{f' (asked {ASKED})' if is_asked else ''} | "
                          f"{slots * bytes_of_one / MIB:.0f}, {weights / MIB:.0f}", flush=True)
                    plain = mixed = None  # before the next are made
    sys.exit(0 if met else 1)


main()
