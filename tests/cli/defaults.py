#!/usr/bin/env python3
"""Defaults are the same in tessera.h, in the library and in every command's help: defaults.py TESSERA HEADER MODEL TEXT."""
import json
import re
import subprocess
import sys

TESSERA, HEADER, MODEL, TEXT = sys.argv[1:]
# Defaults that a command sets itself, differing from the library's: (command, option).
COMMAND_DEFAULTS = {
    ("bench", "steps"),  # rounds that are timed
}
ALIASES = {"tokens": "max_tokens", "temp": "temperature"}  # of the command -> the library's


NOT_VALUES = {"the", "and", "as", "a", "by", "none"}  # words that may follow "default" and are no value


def header_defaults(consumer):
    """{option: default} of the list of options above a function; those without a plain value are left out."""
    text = open(HEADER).read()
    comment = text[: text.index(f"TSR_API tsr_status* {consumer}(")].rsplit("/*", 1)[1]
    found = {}
    # " *   lr   f64   learning rate (default 1e-3)"
    for match in re.finditer(r"^ \*   (\w[\w, ]*?)  +(?:i64|f64|str)\b(.*?)(?=^ \*   \w|\Z|^ \* \S)", comment, re.M | re.S):
        body = re.sub(r"\s*\n \* *", " ", match.group(2))
        value = re.search(r"(\S+) \(default\)|\(?default:? \"?([\w.:+-]+)", body)
        if value and "," not in match.group(1) and " " not in match.group(1).strip():
            found[match.group(1)] = (value.group(1) or value.group(2)).strip(',;.:"()')
    return {key: value for key, value in found.items() if value not in NOT_VALUES}


def help_defaults(command):
    text = subprocess.run([TESSERA, command, "--help"], check=True, capture_output=True, text=True).stdout
    assert "Example:" in text, f"{command} --help has no example"
    found = {}
    for match in re.finditer(r"^  (-.*?)(?=^  -|^\S|\Z)", text, re.M | re.S):
        entry = re.sub(r"\s+", " ", match.group(1))
        names = re.findall(r"--([\w-]+)", entry.split(" ")[0].replace(",", " "))
        # "--lr FLOAT=0.001 ...", "--lr FLOAT [0.001] ...", "... (default 0.001)", "... 0.001 (default)"
        value = re.search(r"^\S+ [A-Z]+=(\S+)|^\S+ [A-Z]+ \[(\S+)\]", entry) or re.search(r"\(default:? ([\w.:+-]+)", entry) or re.search(r"(\S+) \(default\)", entry)
        for name in names:
            key = ALIASES.get(name, name).replace("-", "_")
            if value:
                found.setdefault(key, next(filter(None, value.groups())).strip(",;.:"))
    return {key: value for key, value in found.items() if value not in NOT_VALUES}


def same(a, b):
    try:
        return float(a) == float(b)
    except ValueError:
        return a == b


# command -> the C functions whose lists of options it exposes
CONSUMERS = {"train": ["tsr_trainer_new", "tsr_dataset_new_file"], "eval": ["tsr_trainer_new", "tsr_dataset_new_file"],
         "generate": ["tsr_generator_new", "tsr_engine_new"], "chat": ["tsr_generator_new"], "plan": ["tsr_trainer_new", "tsr_generator_new"], "bench": ["tsr_trainer_new"], "score": ["tsr_scorer_new"], "embed": ["tsr_embedder_new"], "classify": ["tsr_embedder_new"],
         "quantize": ["tsr_conversion_begin"], "export": ["tsr_export_begin"], "imatrix": ["tsr_imatrix_begin"]}
compared = 0
for command, consumers in CONSUMERS.items():
    shown = help_defaults(command)
    for consumer in consumers:
        for key, wanted in header_defaults(consumer).items():
            if key in shown and (command, key) not in COMMAND_DEFAULTS:
                compared += 1
                assert same(shown[key], wanted), f"`{command} --help` says that {key} is {shown[key]}, {HEADER} {wanted}"
assert compared >= 25, f"only {compared} defaults were parsed in both; has the form of the header or of --help changed?"

# The library's defaults are the header's: a run with every default given explicitly has the losses of a run without options.
SHORT = ["--data", TEXT, "--steps", "3", "--seq", "16", "--json", "--quiet"]
stated = header_defaults("tsr_trainer_new")
explicit = []
for key in ("batch", "lr", "schedule", "warmup", "optimizer", "clip_norm", "seed", "precision", "weights", "eval_batches"):
    assert key in stated, f"{HEADER} states no default of {key}"
    explicit += ["--" + key.replace("_", "-"), stated[key]]
runs = []
for extra in ([], explicit):
    out = subprocess.run([TESSERA, "train", MODEL, *SHORT, *extra], check=True, capture_output=True, text=True).stdout
    runs.append(json.loads(out.strip().splitlines()[-1])["losses"])
assert runs[0] == runs[1], f"losses without options {runs[0]}, with the header's defaults given explicitly {runs[1]}"
print(f"ok: defaults: {compared} are the same in header and help, and are the library's")
