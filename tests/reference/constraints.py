#!/usr/bin/env python3
"""constraints.py CONSTRAINED_TEXT [--suite FOLDER] [--verbose]: constrained output against Python's jsonschema.

Takes every schema of the official JSON Schema Test Suite (draft 2020-12) and some more as applications write them. Each is
obeyed or refused. Where it is obeyed: no value that the suite calls invalid is accepted, every text that random tokens
give parses and is valid, and of the valid values it counts those that are not accepted, by reason. Exits with 1 where not.

CONSTRAINED_TEXT is the target constrained_text of a build. FOLDER: tests/draft2020-12 of the suite; without it jsonschema's
source package is fetched with pip, which has it. Needs jsonschema >= 4.20."""
import argparse
import collections
import json
import pathlib
import subprocess
import sys
import tarfile
import tempfile

import jsonschema

PACKAGE = "jsonschema==4.26.0"
TOKENS = ['{"', '":', '": ', '", "', '"}', '"]', "[", "], ", " ", "  ", "true", "null", "the", "12", "0.5", "foo", "bar", "\\u", "é", "日本", "-1", "e", "\n"]
# The suite's values are of every type; these schemas are as applications have them.
MORE = [
    {"type": "object", "properties": {"name": {"type": "string", "minLength": 1, "maxLength": 40}, "age": {"type": "integer", "minimum": 0, "maximum": 150},
                                      "mail": {"type": "string", "format": "email"}, "born": {"type": "string", "format": "date"},
                                      "score": {"type": "number", "exclusiveMinimum": 0, "maximum": 1}}, "required": ["name", "age"], "additionalProperties": False},
    {"$defs": {"node": {"type": "object", "properties": {"value": {"type": ["integer", "null"]}, "next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}},
                        "required": ["value", "next"], "additionalProperties": False}}, "$ref": "#/$defs/node"},
    {"oneOf": [{"type": "object", "properties": {"kind": {"const": "circle"}, "radius": {"type": "number"}}, "required": ["kind", "radius"], "additionalProperties": False},
               {"type": "object", "properties": {"kind": {"const": "square"}, "side": {"type": "number"}}, "required": ["kind", "side"], "additionalProperties": False}]},
    {"type": "array", "prefixItems": [{"enum": ["get", "put"]}, {"type": "string", "pattern": "^/[a-z0-9/]*$"}], "items": {"type": "boolean"}, "minItems": 1, "maxItems": 5},
    {"allOf": [{"type": "object", "properties": {"a": {"type": "integer", "minimum": 3}}, "required": ["a"]}, {"properties": {"b": {"type": "string", "format": "uuid"}}, "required": ["b"]}]},
    {"type": "object", "properties": {"t": {"type": "string", "format": "date-time"}, "u": {"type": "string", "format": "uri"}, "i": {"type": "string", "format": "ipv4"},
                                      "c": {"type": "string", "format": "time"}, "h": {"type": "string", "format": "hostname"}}, "required": ["t", "u", "i", "c", "h"]},
    {"type": "object", "additionalProperties": {"type": "number", "minimum": -2.5, "maximum": 7.25}, "maxProperties": 3},
    {"type": "object", "properties": {"id": {"type": "integer"}}, "additionalProperties": {"type": "string", "maxLength": 5}},
    {"type": "object", "patternProperties": {"^x-": {"type": "boolean"}}, "additionalProperties": False},
    {"type": "string", "pattern": "^(\\([0-9]{3}\\))?[0-9]{3}-[0-9]{4}$"},
    {"type": "string", "pattern": "[^a-z\\s]{2}\\S"},
]


class Command:
    def __init__(self, path):
        self.process = subprocess.Popen([path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8")

    def ask(self, **request):
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())


def fetched_suite(folder):
    subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", "jsonschema", "--dest", folder, PACKAGE], check=False)
    with tarfile.open(next(folder.glob("*.tar.gz"))) as package:
        for member in package.getmembers():
            if "/json/tests/draft2020-12/" in member.name and member.name.endswith(".json"):
                (folder / member.name.split("/draft2020-12/")[1].replace("/", "_")).write_bytes(package.extractfile(member).read())
    return folder


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command")
    parser.add_argument("--suite", type=pathlib.Path)
    parser.add_argument("--verbose", action="store_true")
    arguments = parser.parse_args()
    command = Command(arguments.command)
    failures, counts, refusals, left_out = [], collections.Counter(), collections.Counter(), []
    with tempfile.TemporaryDirectory() as scratch:
        folder = arguments.suite or fetched_suite(pathlib.Path(scratch))
        groups = [(file.stem, group["schema"], group["tests"]) for file in sorted(folder.glob("*.json")) for group in json.loads(file.read_text())]
    assert len(groups) > 300, f"only {len(groups)} schemas in {folder}"
    groups += [("more", schema, []) for schema in MORE]
    for seed, (name, schema, tests) in enumerate(groups):
        texts = [json.dumps(test["data"], ensure_ascii=False, separators=(",", ":")) for test in tests]
        texts = [text for text in texts if "\\ud" not in text]
        answer = command.ask(kind="json_schema", source=json.dumps(schema), texts=texts, walks=20 if tests else 300, seed=seed, tokens=TOKENS)
        if "error" in answer:
            counts["schemas refused"] += 1
            refusals[answer["error"].split(": ", 2)[-1][:70]] += 1
            if not tests or not answer["error"].startswith(("unsupported: ", "invalid_argument: ")):
                failures.append(f"{name}: {json.dumps(schema)}\n  {answer['error']}")
            continue
        counts["schemas obeyed"] += 1
        validator = jsonschema.Draft202012Validator(schema, format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER)
        for text, is_accepted, test in zip(texts, answer["accepted"], tests):
            if is_accepted and not test["valid"]:
                failures.append(f"{name}: {json.dumps(schema)}\n  accepts the invalid {text}")
            counts["invalid values refused"] += not test["valid"] and not is_accepted
            counts["valid values accepted"] += test["valid"] and is_accepted
            if test["valid"] and not is_accepted:
                left_out.append((name, schema, text))
        if "\\\\W" in json.dumps(schema):  # of Unicode for Python, of ASCII for ECMA-262 and the suite
            continue
        for text in answer["texts"]:
            counts["random texts"] += 1
            try:
                validator.validate(json.loads(text))
            except (jsonschema.ValidationError, ValueError) as error:
                failures.append(f"{name}: {json.dumps(schema)}\n  random text {text!r}: {str(error).splitlines()[0]}")
    counts["valid values not accepted"] = len(left_out)
    if arguments.verbose:
        for reason, count in refusals.most_common():
            print(f"refused {count}: {reason}")
        for name, schema, text in left_out:
            print(f"not accepted, {name}: {json.dumps(schema)} {text}")
    print("\n".join(failures))
    print(", ".join(f"{count} {what}" for what, count in sorted(counts.items())))
    print(f"{len(failures)} failures")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
