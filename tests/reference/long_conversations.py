#!/usr/bin/env python3
"""long_conversations.py LIBTESSERA FOLDER [--seconds S]: public chat templates render conversations of 1 MB.

Renders each .jinja file of FOLDER (as chat_templates.py fetches them) with 2,000 messages, tools and calls of tools, 1 MB in
all, and with 8 messages of 128 KB. A template that refuses the conversation's form is tried with plainer ones. Each must be
done within S seconds (default 1) of the processor's time, and none may run out of steps. Prints the slowest."""
import argparse
import ctypes as C
import json
import os
import pathlib
import sys
import time

TEXT = "Straße 5: the quick brown fox jumps over the lazy dog.\nif (a < b) { return \"x\"; }\n<think> 日本 </think> "


def tool(i):
    return {"type": "function", "function": {
        "name": f"tool_{i}", "description": "What it does. " * 10, "parameters": {
            "type": "object", "required": ["city"],
            "properties": {"city": {"type": "string", "description": "A city"},
                           "unit": {"type": "string", "enum": ["C", "F"]}, "days": {"type": "integer"}}}}}


def conversation(messages, size, with_calls, with_system):
    each = (TEXT * (size // len(TEXT) + 1))[:size]
    made = [{"role": "system", "content": "You help."}] if with_system else []
    for i in range(messages // 4):
        made.append({"role": "user", "content": each})
        if with_calls:
            identity = f"{i:09d}"
            made.append({"role": "assistant", "content": "", "tool_calls": [
                {"id": identity, "type": "function", "function": {"name": "tool_1", "arguments": {"city": each, "days": 3}}}]})
            made.append({"role": "tool", "tool_call_id": identity, "name": "tool_1", "content": each})
            made.append({"role": "assistant", "content": each})
        else:
            made += [{"role": "assistant", "content": each}, {"role": "user", "content": each},
                     {"role": "assistant", "content": each}]
    return made + [{"role": "user", "content": each}]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("library")
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--seconds", type=float, default=1)
    asked = parser.parse_args()
    library = C.CDLL(asked.library)
    library.tsr_status_message.restype = C.c_char_p
    for name in ("tsr_options_new", "tsr_options_set_str", "tsr_chat_new_text", "tsr_chat_render"):
        getattr(library, name).restype = C.c_void_p

    def render(text, tools, messages):
        chat, out, options = C.c_void_p(), C.c_void_p(), C.c_void_p()
        library.tsr_options_new(C.byref(options))
        if tools:
            library.tsr_options_set_str(options, b"tools", json.dumps(tools).encode())
        error = library.tsr_chat_new_text(text, C.c_size_t(len(text)), None, C.byref(chat))
        given = json.dumps(messages, ensure_ascii=False).encode()
        begin = time.process_time()
        error = error or library.tsr_chat_render(chat, options, given, C.c_size_t(len(given)), C.byref(out))
        took = time.process_time() - begin
        return took, library.tsr_status_message(C.c_void_p(error)).decode()[:160] if error else ""

    took = []
    for path in sorted(asked.folder.glob("*.jinja")):
        for count, size in ((2000, 500), (8, 128_000)):
            errors = []
            for with_calls, with_system in ((True, True), (True, False), (False, True), (False, False)):
                tools = [tool(i) for i in range(20)] if with_calls else None
                seconds, error = render(path.read_bytes(), tools, conversation(count, size, with_calls, with_system))
                errors.append(error)
                if not error or "steps" in error:
                    break
            took.append((seconds, path.name, count, error, with_calls))
    took.sort(reverse=True)
    for seconds, name, count, error, with_calls in took[:10]:
        print(f"{seconds:7.3f} s  {name}, {count} messages{', calls' if with_calls else ''}: {error or 'rendered'}")
    refused = [each for each in took if each[3]]
    for each in refused:
        print(f"refused: {each[1]}, {each[2]} messages: {each[3]}")
    bad = [each for each in took if each[0] > asked.seconds or "steps" in each[3]]
    print(f"{len(took)} renderings, {len(refused)} refused, {len(bad)} above {asked.seconds} s or out of steps")
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
