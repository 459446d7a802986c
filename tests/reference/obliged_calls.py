#!/usr/bin/env python3
"""obliged_calls.py RENDER_CHAT OBLIGED_CALLS [--templates FOLDER] [--only NAME] [--count N]: calls that grammars oblige.

For each public template that writes calls, random texts of its grammar, with one call of a named tool and with any calls,
where marks are letters and where they are control tokens: each must be read back as calls alone, of these tools, with
arguments that are valid for Python's jsonschema. Exits with 1 where not.

RENDER_CHAT and OBLIGED_CALLS are the targets render_chat and obliged_calls of a build; FOLDER as chat_templates.py's.
Needs jsonschema."""
import argparse
import json
import pathlib
import sys

import jsonschema

from chat_templates import NOW, SPECIAL, Renderer, fetched_templates

SCHEMAS = {
    "get_weather": {"type": "object", "properties": {
        "city": {"type": "string", "description": "a city", "minLength": 1, "maxLength": 30},
        "days": {"type": "integer", "description": "days", "minimum": 1, "maximum": 14},
        "unit": {"type": "string", "description": "a unit", "enum": ["C", "F"]},
        "where": {"type": "object", "description": "a place", "additionalProperties": False, "required": ["lat"], "properties": {
            "lat": {"type": "number"}, "lon": {"type": ["number", "null"]}, "note": {"type": "string"}}},
        "tags": {"type": "array", "description": "tags", "items": {"type": "string"}, "maxItems": 3}},
        "required": ["city", "unit"], "additionalProperties": False},
    "write_file": {"type": "object", "properties": {
        "path": {"type": "string", "description": "a path", "pattern": "^[a-z]+\\.(py|cc)$"},
        "text": {"type": "string", "description": "its text"},
        "mode": {"anyOf": [{"type": "string", "enum": ["a", "w", "7"]}, {"type": "integer"}, {"type": "null"}], "description": "a mode"},
        "day": {"type": "string", "format": "date", "description": "a day"}},
        "required": ["path", "text"], "additionalProperties": False},
    "noop": {"type": "object", "properties": {}, "additionalProperties": False},
}
TOOLS = [{"type": "function", "function": {"name": name, "description": "does it", "parameters": schema}}
         for name, schema in SCHEMAS.items()]


def failure(answer, name):
    """What is wrong with an answer; None: nothing."""
    message = answer["message"]
    if message["content"]:
        return f"content {message['content']!r}"
    calls = message.get("tool_calls", [])
    if not calls or (name and len(calls) != 1):
        return f"{len(calls)} calls"
    for call in calls:
        function = call["function"]
        if function["name"] not in SCHEMAS or name not in ("", function["name"]):
            return f"the name {function['name']!r}"
        try:
            jsonschema.validate(function["arguments"], SCHEMAS[function["name"]], jsonschema.Draft202012Validator)
        except jsonschema.ValidationError as error:
            return f"{function['arguments']}: {error.message}"
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("render")
    parser.add_argument("calls")
    parser.add_argument("--templates")
    parser.add_argument("--only")
    parser.add_argument("--count", type=int, default=50)
    asked = parser.parse_args()
    render, write = Renderer(asked.render), Renderer(asked.calls)
    folder = pathlib.Path(asked.templates) if asked.templates else fetched_templates()
    texts, good, bad, without = 0, 0, 0, []
    for path in sorted(folder.glob("*.jinja")):
        if asked.only and asked.only not in path.stem:
            continue
        template = path.read_text()
        request = {"template": template, "special": SPECIAL, "tools": TOOLS}
        prompt = render({**request, "messages": [{"role": "user", "content": "Hi"}], "now": NOW, "add_generation_prompt": True,
                         "variables": {"functions": "[]", "datetime": "now"}}).get("text", "")
        wrong = None
        for number, (name, control) in enumerate([("", False), ("", True), ("get_weather", False), ("write_file", True)]):
            said = write({**request, "name": name, "prompt": prompt, "count": asked.count, "seed": number, "control": control})
            if "error" in said:
                wrong = said["error"]
                break
            texts += len(said["answers"])
            for answer in said["answers"]:
                if wrong := failure(answer, name):
                    wrong += f" in {answer['text']!r}"
                    break
            if wrong:
                break
        if wrong and "writes no calls of tools" in wrong:
            without.append(path.stem)
        elif wrong:
            bad += 1
            print(f"{path.stem}: {wrong}")
        else:
            good += 1
    print(f"{good} templates, {texts} texts; {bad} failed; {len(without)} write no calls: {', '.join(without)}")
    return 1 if bad or not good else 0


if __name__ == "__main__":
    sys.exit(main())
