#!/usr/bin/env python3
"""Turns CUDA C++ into C++ for the emulator: kernel launches become calls of emulator::launch, whose arguments are
evaluated at once and kept by value, as the driver keeps them; shared memory becomes memory of the host thread; launch
bounds become a check.

    translate.py SOURCE_ROOT OUT_ROOT FILE...     (FILE relative to SOURCE_ROOT; its place is kept)
"""
import pathlib
import re
import sys


def close(text, at, opening, closing):
    """Index just past the bracket that closes the one at `at`."""
    depth = 0
    while True:
        if text[at] == opening:
            depth += 1
        elif text[at] == closing:
            depth -= 1
            if depth == 0:
                return at + 1
        at += 1


def kernel_begin(text, at):
    """Index where the name of the kernel begins that ends before `at`, template arguments included."""
    while text[at - 1].isspace():
        at -= 1
    if text[at - 1] == ">":
        depth = 0
        while True:
            at -= 1
            depth += {">": 1, "<": -1}.get(text[at], 0)
            if depth == 0:
                break
    while text[at - 1].isalnum() or text[at - 1] in "_:":
        at -= 1
    return at


def parts(text):
    """Split at commas outside of brackets."""
    found, depth = [""], 0
    for character in text:
        depth += {"(": 1, "{": 1, "[": 1, ")": -1, "}": -1, "]": -1}.get(character, 0)
        if character == "," and depth == 0:
            found.append("")
        else:
            found[-1] += character
    return found


def check_bounds(text):
    """Kernels with launch bounds compare them with their block."""
    at = 0
    while (at := text.find("__launch_bounds__(", at)) >= 0:
        open_bounds = text.index("(", at)
        end = close(text, open_bounds, "(", ")")
        body = text.index("{", close(text, text.index("(", end), "(", ")"))
        check = f"emulator::check_bounds{text[open_bounds:end]};"
        text = text[:body + 1] + check + text[body + 1:]
        at = end
    return text


def shared_arrays(text):
    """Static shared memory lies in memory of the host thread, which runs one block at a time."""
    def declare(found):
        alignment, kind = f", {found[1]}" if found[1] else "", found[2]
        made = ""
        for each in parts(found[3]):
            name, extents = re.fullmatch(r"\s*(\w+)(.*)", each, re.DOTALL).groups()
            made += (f"using {name}_array = {kind}{extents}; "
                     f"static __thread emulator::Shared<{name}_array{alignment}> {name}_memory; "
                     f"{name}_array& {name} = {name}_memory.get();")
        return made
    return re.sub(r"__shared__ (?:__align__\((\d+)\) )?([\w:]+(?:<[^<>]*>)?) ([^;]+);", declare, text)


def translate(text):
    text = check_bounds(text)
    text = re.sub(r"extern __shared__ (?:__align__\(\d+\) )?unsigned char (\w+)\[\];",
                  r"unsigned char* \1 = emulator::dynamic_shared();", text)
    text = shared_arrays(text)
    text = text.replace("__noinline__ ", "")  # no keyword of g++, and no macro: its headers use the word
    while (at := text.find("<<<")) >= 0:
        begin = kernel_begin(text, at)
        end_of_config = text.index(">>>", at)
        open_args = text.index("(", end_of_config)
        end = close(text, open_args, "(", ")")
        kernel = text[begin:at].strip()
        config = text[at + 3:end_of_config]
        arguments = text[open_args + 1:end - 1]
        # A kernel with dynamic shared memory is named, so that what was set aside for it is compared.
        shared = (parts(config) + ["0"] * 4)[2].strip()
        name = "nullptr" if shared == "0" else f"reinterpret_cast<const void*>(&{kernel})"
        call = f"[=](auto... given) {{ {kernel}(given...); }}"
        text = (text[:begin] + f'emulator::launch({{{config}}}, "{kernel}", {name}, {call}'
                + (", " + arguments if arguments.strip() else "") + ")" + text[end:])
    return text


def main():
    source, out = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    for name in sys.argv[3:]:
        target = out / (name[:-3] + ".emulated.cc" if name.endswith(".cu") else name)
        target.parent.mkdir(parents=True, exist_ok=True)
        text = f'#line 1 "{source / name}"\n' + translate((source / name).read_text())
        if not target.exists() or target.read_text() != text:
            target.write_text(text)


main()
