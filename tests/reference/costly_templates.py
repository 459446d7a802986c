#!/usr/bin/env python3
"""costly_templates.py LIBTESSERA [--seconds S] [--only NAME]: chat templates that do as much as they may with operands of 1 MB.

Takes the calls of every filter, test, method, function and operator from tests/serialize/jinja_test.cc, which fails where
one is missing, and runs each two million times on operands of 1 MB, which the template makes, or the caller gives; and
some templates that loop, look names up or copy without end. Each must be done, or fail, within S seconds (default 1) of the
processor's time. Prints the slowest, and exits with 1 where one takes longer. LIBTESSERA: of an optimised build."""
import argparse
import ctypes as C
import json
import os
import pathlib
import re
import resource
import sys
import time

SOURCE = pathlib.Path(__file__).resolve().parents[1] / "serialize/jinja_test.cc"
MADE = ("{% set s = ('a' * 1000) * 1000 %}{% set t = ('a' * 1000) * 1000 %}{% set n = ('9' * 1000) * 1000 %}"
        "{% set j = '[' ~ ('1,' * 250000) ~ '1]' %}{% set c = '%c' * 500 %}{% set l = range(100000)|list %}"
        "{% set w = ('b' * 99999).split('b') %}{% set d = dict(pairs) %}")
LOOP = "{% macro m() %}{% if varargs %}{% endif %}{% endmacro %}{% for k in range(20) %}{% for i in range(100000) %}{% set x = EXPR %}{% endfor %}{% endfor %}"
names = ",".join(f"a{i}" for i in range(8000))
MORE = {
    "empty loops": "{% for k in range(99999) %}{% for i in range(99999) %}{% endfor %}{% endfor %}",
    "8,000 names": "{% set " + names + " = range(8000) %}{% for k in range(20) %}{% for i in range(100000) %}{% if a7999 %}{% endif %}{% endfor %}{% endfor %}",
    "undefined names": "{% for k in range(20) %}{% for i in range(100000) %}{% if q %}{% endif %}{% endfor %}{% endfor %}",
    "a namespace of 8,000": "{% set ns = namespace(**dict(pairs)) %}{% for k in range(20) %}{% for i in range(100000) %}{% if ns.k7999 %}{% endif %}{% endfor %}{% endfor %}",
    "macro calls": "{% macro m(a, b=1) %}{{ a }}{% endmacro %}{% for k in range(20) %}{% for i in range(100000) %}{{ m(i) }}{% endfor %}{% endfor %}",
    "many origins": "{% set s = data|join('x') %}{% for k in range(20) %}{% for i in range(100000) %}{% set x = [s] %}{% endfor %}{% endfor %}",
    "a loop with a condition": "{% for k in range(99999) %}{% for i in range(99999) if false %}{% endfor %}{% endfor %}",
    "characters": "{% set s = ('a' * 1000) * 1000 %}{% for k in range(99999) %}{% for c in s %}{% endfor %}{% endfor %}",
    "numbers as texts": "{% for k in range(20) %}{% for i in range(100000) %}{% set x = '%.9000f' % 0.1 %}{% endfor %}{% endfor %}",
    "attributes of parts": "{% for k in range(20) %}{% for i in range(100000) %}{% set x = [1]|map(attribute='a.b.c.d.e.f.g.h')|list %}{% endfor %}{% endfor %}",
    "strip of many": "{% set s = ('a' * 1000) * 1000 %}{% set t = ('b' * 1000) * 999 ~ 'a' %}{% for i in range(100000) %}{% set x = s.strip(t) %}{% endfor %}",
    "words": "{% for k in range(20) %}{% for i in range(100000) %}{% set x = 'Hello World' %}{% endfor %}{% endfor %}",
}


def calls():
    text = SOURCE.read_text()
    for table in ("Filters", "Tests", "Methods", "Functions", "Operators"):
        body = re.search(r"kCostly" + table + r"\[\] = \{(.*?)\n\};", text, re.S).group(1)
        for name, expression in re.findall(r'\{"((?:[^"\\]|\\.)*)", "((?:[^"\\]|\\.)*)"\}', body):
            expression = expression.lstrip("!")
            if table == "Tests":
                expression = f"[s]|select('{name}'{expression})"
            yield f"{table.lower()[:-1]} {name}", expression.replace("19999", "99999")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("library")
    parser.add_argument("--seconds", type=float, default=1)
    parser.add_argument("--only")
    asked = parser.parse_args()
    library = C.CDLL(asked.library)
    library.tsr_status_message.restype = C.c_char_p
    for name in ("tsr_options_new", "tsr_options_set_str", "tsr_chat_new_text", "tsr_chat_render"):
        getattr(library, name).restype = C.c_void_p
    million = "a" * 1_000_000
    operands = {"s": million, "t": million, "n": "9" * 1_000_000, "j": "[" + "1," * 250_000 + "1]", "c": "%c" * 500,
                "l": list(range(100_000)), "w": [""] * 100_000, "d": {f"k{i}": i for i in range(20_000)}}
    small = json.dumps({"pairs": [[f"k{i}", i] for i in range(8000)], "data": ["d"] * 30_000})
    cases = []
    for name, expression in calls():
        loop = LOOP.replace("EXPR", expression)
        given = json.dumps({key: operands[key] for key in re.findall(r"(?<!')\b[stnjclwd]\b(?!')", expression)})
        cases += [(name + ", made", MADE + loop, small), (name + ", given", loop, given)]
    cases += [(name, text, small) for name, text in MORE.items()]
    cases += [(name + ", with 1 MB", text, json.dumps({**json.loads(small), "s": million})) for name, text in MORE.items()]

    def render(text, variables):
        chat, out, options = C.c_void_p(), C.c_void_p(), C.c_void_p()
        library.tsr_options_new(C.byref(options))
        library.tsr_options_set_str(options, b"variables", variables.encode())
        error = library.tsr_chat_new_text(text.encode(), C.c_size_t(len(text)), None, C.byref(chat))
        error = error or library.tsr_chat_render(chat, options, b'[{"role":"user","content":"Hi"}]',
                                                 C.c_size_t(2**64 - 1), C.byref(out))
        return library.tsr_status_message(C.c_void_p(error)).decode()[:60] if error else "rendered"

    took = []
    for name, text, variables in cases:
        if asked.only and asked.only not in name:
            continue
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            resource.setrlimit(resource.RLIMIT_CPU, (30, 30))
            begin = time.process_time()
            what = render(text, variables)
            os.write(writing, f"{time.process_time() - begin:.3f} {what}".encode())
            os._exit(0)
        os.close(writing)
        os.waitpid(child, 0)
        answer = os.read(reading, 200).decode() or "30 ended"
        os.close(reading)
        seconds, what = answer.split(" ", 1)
        took.append((float(seconds), name, what))
        if asked.only:
            print(name, seconds, what)
    took.sort(reverse=True)
    for seconds, name, what in took[:25]:
        print(f"{seconds:7.3f} s  {name}: {what}")
    late = [each for each in took if each[0] > asked.seconds]
    print(f"{len(took)} templates, {len(late)} above {asked.seconds} s")
    sys.exit(1 if late else 0)


if __name__ == "__main__":
    main()
