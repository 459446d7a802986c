#!/usr/bin/env python3
"""served_schemas.py COMMAND VOCABULARY [--count 1000] [--cost MODEL]: random JSON schemas through the engine, against Python's jsonschema.

Makes a small model with random weights and VOCABULARY's tokenizer (a .tsr or GGUF file), a request for each of COUNT random schemas
(numbers with bounds, enums, arrays, nesting, $ref, patterns, bounded lengths), and runs them as one file of prompts. Every text that is
finished must validate; those that end by length are counted, at most 1 %. --cost: seconds of a token with a schema against without, over
MODEL, alternately, medians. Exits with 1 where not. COMMAND is the tessera command; needs jsonschema (Debian's python3-jsonschema)."""
import argparse
import json
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile

import jsonschema

WORDS = ["name", "id", "kind", "größe", "a b", "url", "tags", "x-1", "日本", "value", "items", "unit"]
PATTERNS = ["^[A-Z]{2}[0-9]{4}$", "^(foo|bar)+$", "^\\+?[0-9]{3,9}$", "^[a-z]+(-[a-z]+){0,3}$", "^.{2,5}$", "^\\d{4}-\\d{2}$"]


def number(rng, kind):
    schema = {"type": kind}
    low = rng.randint(-1000, 1000) if kind == "integer" else round(rng.uniform(-100, 100), rng.randint(0, 3))
    if rng.random() < 0.7:
        schema[rng.choice(["minimum", "exclusiveMinimum"])] = low
        if rng.random() < 0.8:
            schema[rng.choice(["maximum", "exclusiveMaximum"])] = low + rng.randint(2, 5000)
    elif rng.random() < 0.5:
        schema["maximum"] = low
    return schema


def string(rng):
    choice = rng.random()
    if choice < 0.35:
        return {"type": "string", "pattern": rng.choice(PATTERNS)}
    if choice < 0.5:
        return {"type": "string", "format": rng.choice(["date", "time", "uuid", "ipv4"])}
    low = rng.randint(0, 8)
    return {"type": "string", "minLength": low, "maxLength": low + rng.randint(0, 20)}


def schema_of(rng, depth, names):
    choice = rng.random()
    if depth == 0 or choice < 0.45:
        kind = rng.randrange(6)
        if kind == 0:
            return {"enum": rng.sample([1, "two", None, True, 3.5, "ü", [1], {"a": 2}], rng.randint(1, 4))}
        if kind == 1:
            return {"type": rng.choice(["boolean", "null"])}
        if kind == 2 and names:
            return {"$ref": f"#/$defs/{rng.choice(names)}"}
        return string(rng) if kind == 3 else number(rng, rng.choice(["integer", "number"]))
    if choice < 0.62:
        low = rng.randint(0, 2)
        schema = {"type": "array", "items": schema_of(rng, depth - 1, names), "minItems": low, "maxItems": low + rng.randint(0, 3)}
        if rng.random() < 0.2:
            schema["prefixItems"] = [schema_of(rng, depth - 1, names)]
            schema["minItems"], schema["maxItems"] = 1, 3
        return schema
    if choice < 0.72:
        return {"anyOf": [schema_of(rng, depth - 1, names) for _ in range(rng.randint(2, 3))]}
    keys = rng.sample(WORDS, rng.randint(1, 4))
    return {"type": "object", "properties": {key: schema_of(rng, depth - 1, names) for key in keys},
            "required": [key for key in keys if rng.random() < 0.6], "additionalProperties": False}


def random_schema(seed):
    rng = random.Random(seed)
    names = ["leaf", "pair"] if rng.random() < 0.4 else []
    schema = schema_of(rng, rng.randint(1, 3), names)
    if names:
        schema = {"$defs": {"leaf": string(rng), "pair": schema_of(rng, 1, ["leaf"])}, **schema}
    return schema


def run(command, model, requests, folder, *flags):
    source, out = folder / "requests.jsonl", folder / "texts.jsonl"
    source.write_text("".join(json.dumps(request) + "\n" for request in requests))
    done = subprocess.run([command, "generate", str(model), "--prompts", str(source), "--out", str(out), "--json", "--quiet", *flags],
                          capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(done.stderr)
    return [json.loads(line) for line in out.read_text().splitlines()], json.loads(done.stdout.splitlines()[-1])


def check(args, folder):
    size = json.loads(subprocess.run([args.command, "inspect", args.vocabulary, "--json"], capture_output=True, text=True, check=True).stdout
                      .splitlines()[-1])
    vocabulary = size["tokenizer"]["vocabulary_size"]
    model = folder / "random.tsr"
    subprocess.run([args.command, "new", f"llama:L=1,C=32,H=2,F=48,V={vocabulary},T=1024", "--tokenizer", args.vocabulary, "-o", str(model)],
                   check=True, capture_output=True)
    schemas, refused, failures, by_length = [], 0, [], 0
    for seed in range(args.count):
        schemas.append(random_schema(seed))
    requests = [{"id": i, "prompt": "", "json_schema": schema, "seed": i, "temperature": 1.0, "max_tokens": 900}
                for i, schema in enumerate(schemas)]
    results, _ = run(args.command, model, requests, folder, "--sequences", "16")
    finished = 0
    for result in results:
        schema = schemas[result["id"]]
        if "error" in result:
            failures.append(f"{result['error']}: {json.dumps(schema)}")
        elif result["finish"] == "length":
            by_length += 1
        else:
            finished += 1
            try:
                jsonschema.Draft202012Validator(schema, format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER).validate(json.loads(result["text"]))
            except (jsonschema.ValidationError, ValueError) as error:
                failures.append(f"{result['text']!r} {str(error).splitlines()[0]}: {json.dumps(schema)}")
    print("\n".join(failures[:20]))
    print(f"{args.count} schemas: {finished} finished, {len(failures)} failures, {by_length} ended by length ({100 * by_length / args.count:.1f} %, "
          f"asked at most 1), {refused} refused")
    return not failures and by_length <= 0.01 * args.count and finished + by_length == args.count


def cost(args, folder):
    """Milliseconds a token, of one text and of sixteen, without and with a schema."""
    schema = {"type": "array", "items": {"type": "object", "required": ["name", "score", "tags"], "properties": {
        "name": {"type": "string", "minLength": 3, "maxLength": 30}, "score": {"type": "number", "minimum": 0, "maximum": 1000},
        "tags": {"type": "array", "items": {"type": "string", "maxLength": 12}, "maxItems": 4}}}, "minItems": 400}
    met = True
    for count in (1, 16):
        times = {False: [], True: []}
        for turn in range(6):
            for with_schema in (False, True):
                requests = [{"prompt": "", "seed": i, "max_tokens": 96, "min_tokens": 96, "ignore_eos": 1, **({"json_schema": schema} if with_schema else {})}
                            for i in range(count)]
                results, report = run(args.command, args.cost, requests, folder, "--sequences", str(count), "--context", "512")
                tokens = sum(result["tokens"] for result in results)
                if turn > 0:
                    times[with_schema].append(report["report"]["seconds"] / tokens * count)
        without, with_it = (statistics.median(times[key]) for key in (False, True))
        share = with_it / without - 1
        met &= share <= 0.05
        print(f"{count} texts: {1e3 * without:.2f} ms a step without, {1e3 * with_it:.2f} with a schema: {100 * share:+.1f} % (asked at most 5)")
    return met


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command"), parser.add_argument("vocabulary"), parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--cost")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        met = check(args, pathlib.Path(scratch))
        if args.cost:
            met &= cost(args, pathlib.Path(scratch))
    sys.exit(0 if met else 1)


main()
