#!/usr/bin/env python3
"""chat_answers.py RENDER_CHAT PARSE_ANSWER [--templates FOLDER] [--only NAME] [--verbose]: answers from chat templates.

Public templates render assistant messages with content, reasoning and calls of tools; what the assistant says is cut out
and parsed, which must give the message again, as far as the template shows it. Each answer is also parsed in pieces, and
some thousand mutants of them must neither crash nor lose text. Exits with 1 where a template that shows calls does not
come back.

RENDER_CHAT and PARSE_ANSWER are the targets render_chat and parse_answer of a build; FOLDER as chat_templates.py's."""
import argparse
import json
import pathlib
import random
import sys
import time

from chat_templates import NOW, SPECIAL, Renderer, fetched_templates

TOOLS = [{"type": "function", "function": {"name": name, "description": "does it", "parameters": {
    "type": "object", "properties": {"city": {"type": "string", "description": "a city"},
                                     "days": {"type": "integer", "description": "a number"},
                                     "code": {"type": "string", "description": "a text"},
                                     "where": {"type": "object", "description": "an object", "additionalProperties": True,
                                               "properties": {}}},
    "required": ["city"]}}} for name in ("get_weather", "noop")]
ARGUMENTS = {
    "plain": {"city": "Paris", "days": 4},
    "quoted": {"city": "Pa \"r'is\" \\ é 北京", "days": -1.5},
    "digits": {"city": "007", "code": "12"},
    "nested": {"city": "x", "where": {"k": [1, "b", True, None, {"z": "\"'"}], "e": {}, "l": []}},
    "code": {"city": "a", "code": "if a < b and c > d:\n    print(\"</x>\", '{[(', \"{\")\n\n# end"},
    "none": {},
}


# What cannot come back, since the template writes it otherwise.
KNOWN = {
    "LFM2.5-8B-A1B": (("call quoted", "call code", "two calls", "reasoning, content, two calls"),
                      "does not escape quotes in texts"),
    "MiniMax-M3": (("call nested",), "writes null, {} and [] as nothing"),
    "NVIDIA-Nemotron-Nano-v2": (("content", "reasoning, content", "content, call", "reasoning, content, two calls"),
                                "shows content behind an open <think>"),
    "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B": (("content, call", "reasoning, content, two calls"),
                                                 "shows content as a turn behind that of the calls"),
    "openai-gpt-oss-120b": (("content, call",), "shows content next to calls as reasoning"),
}


def call(name, arguments, number, as_text):
    return {"id": f"abcdefgh{number}", "type": "function", "function": {
        "name": name, "arguments": json.dumps(arguments, ensure_ascii=False) if as_text else arguments}}


def messages(as_text):
    user_content = "It is warm.\n\n- one\n- two <b> [x] {y}"
    think = "Let me see.\nTwo lines, a < b."
    yield "content", {"content": user_content}
    yield "reasoning, content", {"content": user_content, "reasoning_content": think}
    for name, arguments in ARGUMENTS.items():
        yield f"call {name}", {"content": "", "tool_calls": [call("get_weather", arguments, 1, as_text)]}
    two = [call("get_weather", ARGUMENTS["plain"], 1, as_text), call("noop", ARGUMENTS["quoted"], 2, as_text)]
    yield "two calls", {"content": "", "tool_calls": two}
    yield "content, call", {"content": "I look.", "tool_calls": two[:1]}
    yield "reasoning, call", {"content": "", "reasoning_content": think, "tool_calls": two[:1]}
    yield "reasoning, content, two calls", {"content": "I look.", "reasoning_content": think, "tool_calls": two}


def calls_of(message):
    found = []
    for each in message.get("tool_calls", []):
        arguments = each["function"]["arguments"]
        found.append((each["function"]["name"], json.loads(arguments) if isinstance(arguments, str) else arguments))
    return found


# Some templates go on behind the turn: with a header, or with the end of a text.
TURN_ENDS = ("<|END_OF_TURN_TOKEN|>", "<|eot_id|>", "<|end|>", "<|return|>", "<|call|>", "<｜end▁of▁sentence｜>",
             "<|START_OF_TURN_TOKEN|>")


def end_of_turn(full, message):
    words = [message["content"], *(name for name, _ in calls_of(message))]
    last = max(full.rfind(word) for word in words if word)
    return min((at + len(end) * ("START" not in end) for end in TURN_ENDS if (at := full.find(end, last)) >= 0),
               default=len(full))


def cuts(prompt, full, spans):
    """(prompt, answer) pairs: an answer follows the generation prompt; where the template shows it otherwise, it
    follows what they have in common."""
    end = spans[-1][1] if spans else len(full)
    if full.startswith(prompt):
        yield prompt, full[len(prompt):max(end, len(prompt))]
    common = next((i for i, (a, b) in enumerate(zip(prompt, full)) if a != b), min(len(prompt), len(full)))
    edge = max(full.rfind(c, 0, common + 1) + (c == "\n") for c in "<[\n>")
    for at in dict.fromkeys((common, edge)):
        yield prompt, full[at:]
        yield full[:at], full[at:]


class Checker:
    def __init__(self, render, parse):
        self.render, self.parse, self.answers = render, parse, []

    def rendered(self, template, messages, **more):
        return self.render({"template": template, "special": SPECIAL, "messages": messages, "tools": TOOLS, "now": NOW,
                            "variables": {"functions": "[]", "datetime": "now"}, **more})

    def check(self, template, message):
        """(what the template shows, None or what differs)"""
        user = {"role": "user", "content": "USERS WORDS"}
        message = {"role": "assistant", **message}
        prompt, full = self.rendered(template, [user], add_generation_prompt=True), None
        for variables in ({}, {"enable_thinking": True, "thinking": True}):
            shown = self.rendered(template, [user, message], variables={"functions": "[]", "datetime": "now", **variables})
            if "text" in shown and (full is None or message.get("reasoning_content", "") in shown["text"]):
                full = shown["text"]
                if variables:
                    prompt = self.rendered(template, [user], add_generation_prompt=True,
                                           variables={"functions": "[]", "datetime": "now", **variables})
                if message.get("reasoning_content", "") in full:
                    break
        if full is None or "text" not in prompt:
            return None, None
        text = full[full.rfind("USERS WORDS"):]
        want = {"reasoning": message.get("reasoning_content", ""), "content": message["content"], "calls": calls_of(message)}
        for key in ("reasoning", "content"):
            if want[key] not in text:
                want[key] = ""
        for name, arguments in want["calls"]:
            if name not in text or ("city" in arguments and "city" not in text):
                return None, None
        if not any(want.values()):
            return None, None
        spans = self.rendered(template, [user, message], spans=True).get("assistant")
        raw = full.encode()
        spans = [[len(raw[:a].decode()), len(raw[:b].decode())] for a, b in spans or []]
        full = full[:end_of_turn(full, message)]
        first = None
        for before, answer in cuts(prompt["text"], full, spans):
            got = self.parse({"template": template, "special": SPECIAL, "text": answer, "prompt": before, "tools": TOOLS})
            if "error" in got:
                return want, got["error"]
            said = got["message"]
            have = {"reasoning": said.get("reasoning_content", ""), "content": said["content"], "calls": calls_of(said)}
            if have == want and got["is_complete"]:
                self.answers.append((template, before, answer))
                return want, None
            first = first or f"found {have}, complete {got['is_complete']}, wanted {want}, of {answer!r}"
        return want, first


def mutated(text, randomly):
    data = bytearray(text.encode())
    for _ in range(randomly.randint(1, 6)):
        at = randomly.randrange(len(data) + 1)
        kind = randomly.randrange(5)
        if kind == 0:
            del data[at:at + randomly.randint(1, 12)]
        elif kind == 1:
            data[at:at] = randomly.choice([b"<", b"{", b"\"", b"]", b"</", b"\xff", b"\n", b"\\", b"<think>", b"</tool_call>", b"\0"])
        elif kind == 2:
            begin = randomly.randrange(len(data) + 1)
            data[at:at] = data[begin:begin + randomly.randint(1, 40)]
        elif kind == 3 and data:
            data[at % len(data)] = randomly.randrange(256)
        else:
            del data[at:]
    return data.decode(errors="replace")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("render")
    parser.add_argument("parse")
    parser.add_argument("--templates")
    parser.add_argument("--only")
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--mutants", type=int, default=3000)
    asked = parser.parse_args()
    checker = Checker(Renderer(asked.render), Renderer(asked.parse))
    folder = pathlib.Path(asked.templates) if asked.templates else fetched_templates()
    whole, partly, silent = [], [], []
    for path in sorted(folder.glob("*.jinja")):
        if asked.only and asked.only not in path.stem:
            continue
        template = path.read_text()
        results = {}
        for as_text in (False, True):
            for name, message in messages(as_text):
                if name in results:  # arguments as a text only where the template wants them so
                    continue
                want, difference = checker.check(template, message)
                if want is not None:
                    results[name] = difference
        excused, reason = KNOWN.get(path.stem, ((), ""))
        if any(results.get(name) for name in excused):
            print(f"{path.stem} {reason}: {'; '.join(name for name in excused if results.get(name))}")
        failed = {name: difference for name, difference in results.items() if difference and name not in excused}
        shows_calls = any("call" in name for name in results)
        (partly if failed else whole if shows_calls else silent).append(path.stem)
        if failed or asked.verbose:
            print(f"{path.stem}: {len(results) - len(failed)} of {len(results)} come back")
            if asked.verbose:
                got = checker.parse({"template": template, "special": SPECIAL, "text": ""})
                print("   form:", json.dumps(got.get("form", got), ensure_ascii=False))
            for name, difference in failed.items():
                print(f"   {name}: {difference[:700]}")
    randomly = random.Random(1)
    began = time.time()
    bad = 0
    for number in range(asked.mutants if checker.answers else 0):
        template, before, answer = randomly.choice(checker.answers)
        got = checker.parse({"template": template, "special": SPECIAL, "text": mutated(answer, randomly), "prompt": before})
        if "error" in got:
            bad += 1
            print(f"mutant {number}: {got['error'][:600]}")
    print(f"{len(whole)} templates that show calls come back whole, {len(partly)} partly ({', '.join(partly)}); "
          f"{len(silent)} show no calls and come back ({', '.join(silent)}); {asked.mutants} mutants, {bad} differ, "
          f"{time.time() - began:.0f} s")
    sys.exit(1 if partly or bad else 0)


if __name__ == "__main__":
    main()
