#!/usr/bin/env python3
"""bare_arguments.py [COUNT] [SEED]: arguments that a template writes bare, against Python's jsonschema.

Draws schemas of a parameter (types, lists of types, anyOf, oneOf, allOf, $ref, nested $defs, enum, const, patterns,
bounds; named by properties, patternProperties or additionalProperties) and values, writes each as Qwen3-Coder's, GLM's and
tag-per-key templates do, and parses it with tessera.Chat. The parsed argument must be the raw text or its JSON reading,
valid if either is, and the raw text if only that is valid. Exits with 1 where not.
Needs the Python binding and jsonschema."""
import json
import random
import sys

import jsonschema
import tessera

FORMS = {
    "parameters": ("<tool_call>\n<function={{ f.name }}>\n{% for k, v in f.arguments.items() %}<parameter={{ k }}>\n"
                   "{{ v if v is string else v | tojson }}\n</parameter>\n{% endfor %}</function>\n</tool_call>",
                   "<tool_call>\n<function=f>\n<parameter={k}>\n{v}\n</parameter>\n</function>\n</tool_call>"),
    "GLM": ("<tool_call>{{ f.name }}\n{% for k, v in f.arguments.items() %}<arg_key>{{ k }}</arg_key>\n<arg_value>"
            "{{ v if v is string else v | tojson }}</arg_value>\n{% endfor %}</tool_call>",
            "<tool_call>f\n<arg_key>{k}</arg_key>\n<arg_value>{v}</arg_value>\n</tool_call>"),
    "tags": ("<call name=\"{{ f.name }}\">{% for k, v in f.arguments.items() %}<{{ k }}>{{ v if v is string else v | "
             "tojson }}</{{ k }}>{% endfor %}</call>", "<call name=\"f\"><{k}>{v}</{k}></call>"),
}
TEMPLATE = ("{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content or '' }}{% for c in (m.tool_calls or []) %}"
            "{% set f = c.function %}\nCALL{% endfor %}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}"
            "<|im_start|>assistant\n{% endif %}")
TEXTS = ["90210", "00501", "true", "false", "null", "None", "1e5", "-3", "2.5", "0", "7", "abc", "Paris", '{"a": 1}', "[1, 2]",
         "{'a': None}", "9007199254740993", "True", "1.0", "a b"]


def leaf(r):
    kind = r.randrange(13)
    if kind == 0:
        return {"type": "string"}
    if kind == 1:
        return {"type": r.choice(["integer", "number", "boolean", "null", "object", "array"])}
    if kind == 2:
        return {"type": r.sample(["string", "integer", "number", "boolean", "null", "array", "object"], r.randint(1, 3))}
    if kind == 3:
        return {"enum": r.sample(TEXTS + [1, 7, True, None, 2.5], r.randint(1, 4))}
    if kind == 4:
        return {"const": r.choice(TEXTS + [7, False, None])}
    if kind == 5:
        return {"type": "string", "pattern": r.choice(["^[0-9]+$", "^[a-z]", "e", "^.{3}$"])}
    if kind == 6:
        return {"type": "string", "minLength": r.randint(0, 4), "maxLength": r.randint(3, 8)}
    if kind == 7:
        return {"type": r.choice(["integer", "number"]), "minimum": r.choice([0, 5, -10]), "maximum": r.choice([7, 1000])}
    if kind == 8:
        return {"$ref": "#/$defs/" + r.choice(["S", "I", "N", "deep/$defs/S"])}
    if kind == 9:
        return {r.choice(["format", "minLength"]): 1} if r.random() < 0.5 else {"format": "date"}
    if kind == 10:
        return {"description": "anything"}
    if kind == 11:
        return {"type": "string", "nullable": True}
    return {"type": "number", "multipleOf": r.choice([0.5, 2, 10])}


def schema(r, depth=0):
    kind = r.randrange(8) if depth < 2 else 0
    if kind in (1, 2):
        return {"anyOf": [schema(r, depth + 1) for _ in range(r.randint(1, 3))]}
    if kind == 3:
        return {"oneOf": [schema(r, depth + 1) for _ in range(r.randint(1, 3))]}
    if kind == 4:
        return {"allOf": [schema(r, depth + 1) for _ in range(r.randint(1, 2))]}
    if kind == 5 and depth == 0:
        return {"not": leaf(r)}
    if kind == 6:
        return {**leaf(r), "anyOf": [leaf(r), leaf(r)]}
    if kind == 7:
        return {"if": leaf(r), "then": leaf(r), "else": leaf(r)}
    return leaf(r)


DEFS = {"S": {"type": "string"}, "I": {"type": "integer"}, "N": {"anyOf": [{"$ref": "#/$defs/S"}, {"type": "null"}]},
        "deep": {"$defs": {"S": {"type": "string", "title": "deep"}}}}


def reading(raw):
    """What the text reads as, other than a text; (found, value)."""
    text = raw.strip()
    words = {"true": True, "True": True, "false": False, "False": False, "null": None, "None": None}
    if text in words:
        return True, words[text]
    try:
        value = json.loads(text)
        return (False, None) if isinstance(value, str) else (True, value)
    except ValueError:
        pass
    return (True, {"a": None}) if text == "{'a': None}" else (False, None)


def same(a, b):
    return type(a) is type(b) and a == b


def main():
    count, seed = int(sys.argv[1]) if len(sys.argv) > 1 else 600, int(sys.argv[2]) if len(sys.argv) > 2 else 1
    r = random.Random(seed)
    wrong = must_text = 0
    for i in range(count):
        own = schema(r)
        place = r.choice(["properties", "properties", "properties", "patternProperties", "additionalProperties"])
        parameters = {"type": "object", "$defs": DEFS}
        parameters[place] = {"key": own} if place == "properties" else {"^k": own} if place == "patternProperties" else own
        tools = [{"type": "function", "function": {"name": "f", "description": "d", "parameters": parameters}}]
        valid = jsonschema.Draft202012Validator(parameters).is_valid
        for raw in TEXTS:
            name = r.choice(list(FORMS))
            chat = CHATS.setdefault(name, tessera.Chat.from_text(TEMPLATE.replace("CALL", FORMS[name][0])))
            message = chat.parse(FORMS[name][1].replace("{k}", "key").replace("{v}", raw), tools=tools)
            if not message.get("tool_calls"):
                print("no call:", name, raw), sys.exit(1)
            got = message["tool_calls"][0]["function"]["arguments"]["key"]
            has_other, other = reading(raw)
            either = valid({"key": raw}) or (has_other and valid({"key": other}))
            is_known = same(got, raw) or (has_other and same(got, other)) or (
                has_other and isinstance(got, float) and got == other)
            must = valid({"key": raw}) and not (has_other and valid({"key": other}))
            must_text += must
            if not is_known or (either and not valid({"key": got})) or (must and got != raw):
                wrong += 1
                print("wrong:", name, place, json.dumps(own), "raw", repr(raw), "got", repr(got))
    print(f"{count} schemas x {len(TEXTS)} values: {wrong} wrong; {must_text} had to be texts")
    sys.exit(1 if wrong else 0)


CHATS = {}
if __name__ == "__main__":
    main()
