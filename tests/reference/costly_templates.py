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
    "growing text": "{% set ns = namespace(t='') %}{% for i in range(100000) %}{% set ns.t = ns.t ~ 'abcdefgh' %}{% endfor %}",
    "growing sum": "{% set ns = namespace(t='') %}{% for i in range(100000) %}{% set ns.t = ns.t + 'abcdefgh' %}{% endfor %}",
    "growing list": "{% set ns = namespace(l=[]) %}{% for i in range(100000) %}{% set ns.l = ns.l + [i] %}{% endfor %}",
    "doubling": "{% set ns = namespace(t='ab', l=[1]) %}{% for i in range(100) %}{% set ns.t = ns.t ~ ns.t %}{% set ns.l = ns.l + ns.l %}{% endfor %}",
    "slices backwards": "{% set s = ('ab' * 1000) * 500 %}{% for i in range(100000) %}{% set x = s[::-1] %}{% endfor %}",
    "slices of few": "{% set s = ('äb' * 1000) * 500 %}{% for i in range(100000) %}{% set x = s[900000:900001] %}{% endfor %}",
    "steps of a list": "{% set l = range(100000)|list %}{% for i in range(100000) %}{% set x = l[::-3] %}{% endfor %}",
    "an item of a text": "{% set s = ('ä' * 1000) * 500 %}{% for k in range(20) %}{% for i in range(100000) %}{% set x = s[400000] %}{% endfor %}{% endfor %}",
    "a window of a text": "{% set s = ('ä' * 1000) * 500 %}{% for k in range(20) %}{% for i in range(100000) %}{% set x = s.startswith('b', 400000) %}{% endfor %}{% endfor %}",
    "truncated": "{% set s = ('ä' * 1000) * 500 %}{% for k in range(20) %}{% for i in range(100000) %}{% set x = s|truncate(400000, true) %}{% endfor %}{% endfor %}",
    "join of lists": "{% set l = [[1, 2], ['a']] * 20000 %}{% for i in range(100000) %}{% set x = l|join(',') %}{% endfor %}",
    "join of numbers": "{% set l = range(100000)|list %}{% for i in range(100000) %}{% set x = l|join(',') %}{% endfor %}",
    "sort by an attribute": "{% set l = [{'a': {'b': 'Xy'}}, {'a': {'b': 'xY'}}] * 10000 %}{% for i in range(1000) %}{% set x = l|sort(attribute='a.b,a') %}{% endfor %}",
    "sort of long texts": "{% set l = [('a' * 1000) * 100] * 100 %}{% for i in range(1000) %}{% set x = l|sort %}{% endfor %}",
    "sort, cases count": "{% set l = [('a' * 1000) * 100 ~ 'b'] * 100 %}{% for i in range(1000) %}{% set x = l|sort(case_sensitive=true) %}{% endfor %}",
    "groups": "{% set l = [{'a': 1}, {'a': 2}] * 10000 %}{% for i in range(1000) %}{% set x = l|groupby('a') %}{% endfor %}",
    "unique long texts": "{% set l = [('a' * 1000) * 100] * 100 %}{% for i in range(1000) %}{% set x = l|unique|list %}{% endfor %}",
    "indented JSON": "{% set d = dict(pairs) %}{% for i in range(1000) %}{% set x = [[[[[[d]]]]]]|tojson(indent=100) %}{% endfor %}",
    "sorted JSON": "{% set d = dict(pairs) %}{% for i in range(10000) %}{% set x = d|tojson(sort_keys=true) %}{% endfor %}",
    "JSON of a dict": "{% set d = dict(pairs) %}{% for i in range(10000) %}{% set x = d|tojson %}{% endfor %}",
    "format of many": "{% set f = '{0:>9}' * 1000 %}{% for i in range(10000) %}{% set x = f.format(i) %}{% endfor %}",
    "percent of many": "{% set f = '%9d' * 1000 %}{% for i in range(10000) %}{% set x = f % ((i,) * 1000) %}{% endfor %}",
    "replace of nothing": "{% set s = ('ab' * 1000) * 100 %}{% for i in range(10000) %}{% set x = s.replace('', '-') %}{% endfor %}",
    "replace of all": "{% set s = ('a' * 1000) * 500 %}{% for i in range(10000) %}{% set x = s|replace('a', 'bc') %}{% endfor %}",
    "split at spaces": "{% set s = ('a ' * 1000) * 100 %}{% for i in range(10000) %}{% set x = s.split() %}{% endfor %}",
    "split from the right": "{% set s = ('a,' * 1000) * 100 %}{% for i in range(10000) %}{% set x = s.rsplit(',') %}{% endfor %}",
    "lines": "{% set s = ('a\n' * 1000) * 100 %}{% for i in range(10000) %}{% set x = s.splitlines() %}{% set y = s|indent %}{% endfor %}",
    "long texts in a list": "{% set l = [('a' * 1000) * 100 ~ 'b'] * 100 %}{% set t = ('a' * 1000) * 100 ~ 'c' %}{% for i in range(100000) %}{% if t in l %}{% endif %}{% endfor %}",
    "a macro that calls itself": "{% macro f(n) %}{% if n > 0 %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(99) }}",
    "a recursive loop": "{% for x in [1, 2, 3] recursive %}{{ loop([1, 2, 3]) if loop.depth < 90 }}{% endfor %}",
    "sorted dicts": "{% set d = dict(pairs) %}{% for i in range(10000) %}{% set x = d|dictsort %}{% set y = d|dictsort(by='value', reverse=true) %}{% endfor %}",
    "map of a filter": "{% set l = ['a'] * 50000 %}{% for i in range(10000) %}{% set x = l|map('upper')|list %}{% endfor %}",
    "map of replace": "{% set l = ['a'] * 50000 %}{% for i in range(10000) %}{% set x = l|map('replace', 'a', 'b')|list %}{% endfor %}",
    "map of an attribute": "{% set l = [{'a': 1}] * 50000 %}{% for i in range(10000) %}{% set x = l|map(attribute='b')|list %}{% endfor %}",
    "select by a test": "{% set l = ['a'] * 50000 %}{% for i in range(10000) %}{% set x = l|selectattr('x', 'equalto', 1)|list %}{% set y = l|select('in', ['a'])|list %}{% endfor %}",
    "equal lists": "{% set a = ['ab'] * 50000 %}{% set b = ['ab'] * 50000 %}{% for i in range(10000) %}{% if a == b %}{% endif %}{% if a < b %}{% endif %}{% endfor %}",
    "equal dicts": "{% set a = dict(pairs) %}{% set b = dict(pairs) %}{% for i in range(10000) %}{% if a == b %}{% endif %}{% endfor %}",
    "changed": "{% set l = [['ab'] * 5000, ['ab'] * 5000] %}{% for k in range(100) %}{% for i in range(10000) %}{% if loop.changed(l[i % 2]) %}{% endif %}{% endfor %}{% endfor %}",
    "long keys": "{% set s = ('a' * 1000) * 500 %}{% for i in range(100000) %}{% set d = {s: 1, s ~ 'b': 2} %}{% endfor %}",
    "tuples as keys": "{% for k in range(20) %}{% for i in range(100000) %}{% set d = {(1, 2, 3, 4, 5, 6, 7, 8): 1} %}{% endfor %}{% endfor %}",
    "a number among texts": "{% set d = dict(pairs) %}{% for k in range(20) %}{% for i in range(100000) %}{% if d[5] is defined %}{% endif %}{% endfor %}{% endfor %}",
    "batches": "{% set l = range(100000)|list %}{% for i in range(1000) %}{% set x = l|batch(1)|list %}{% endfor %}",
    "slices": "{% set l = range(100000)|list %}{% for i in range(1000) %}{% set x = l|slice(100000)|list %}{% endfor %}",
    "a filled batch": "{% for i in range(100000) %}{% set x = [1]|batch(100000, 0)|list %}{% endfor %}",
    "centred": "{% for i in range(100000) %}{% set x = 'a'|center(1000000) %}{% endfor %}",
    "strip of characters of two bytes": "{% set s = 'ã' * 1000 %}{% set t = ('â' * 1000) * 100 ~ 'ã' %}{% for i in range(100000) %}{% set x = s.strip(t) %}{% endfor %}",
    "a needle that nearly fits": "{% set s = ('a' * 1000) * 500 %}{% set t = 'a' * 127 ~ 'b' ~ 'a' * 128 %}{% for i in range(10000) %}{% if t in s %}{% endif %}{% set x = s.count(t) %}{% endfor %}",
    "a long needle": "{% set s = ('ab' * 1000) * 250 %}{% set t = ('ab' * 1000) * 100 ~ 'b' %}{% for i in range(10000) %}{% if t in s %}{% endif %}{% set x = s.rfind(t) %}{% endfor %}",
    "sigmas": "{% set s = ('Σ' * 1000) * 100 %}{% for i in range(10000) %}{% set x = s|lower %}{% endfor %}",
    "apostrophes after a sigma": "{% set s = 'aΣ' ~ (\"'\" * 1000) * 100 %}{% for i in range(10000) %}{% set x = s|lower %}{% endfor %}",
    "title of words": "{% set s = ('ab ' * 1000) * 100 %}{% for i in range(10000) %}{% set x = s|title %}{% endfor %}",
    "printed lists": "{% set l = range(100000)|list %}{% for i in range(1000) %}{% set x = l|string %}{% endfor %}",
    "printed texts": "{% set l = ['a\n'] * 100000 %}{% for i in range(1000) %}{% set x = l|string %}{% endfor %}",
    "keyword arguments": "{% macro m() %}{{ kwargs }}{% endmacro %}{% set d = dict(pairs) %}{% for i in range(10000) %}{% set x = m(**d) %}{% endfor %}",
    "calls with a block": "{% macro m() %}{{ caller() }}{% endmacro %}{% for k in range(20) %}{% for i in range(100000) %}{% call m() %}a{% endcall %}{% endfor %}{% endfor %}",
    "set blocks": "{% for k in range(20) %}{% for i in range(100000) %}{% set x %}a{% endset %}{% endfor %}{% endfor %}",
    "with": "{% for k in range(20) %}{% for i in range(100000) %}{% with a = 1, b = 2 %}{{ a }}{% endwith %}{% endfor %}{% endfor %}",
    "namespaces": "{% for k in range(20) %}{% for i in range(100000) %}{% set n = namespace(a=1) %}{% set n.b = 2 %}{% endfor %}{% endfor %}",
    "numbers": "{% for k in range(20) %}{% for i in range(100000) %}{% set x = (i * 1.5) ** 0.5 // 3 % 7 %}{% endfor %}{% endfor %}",
    "rounding": "{% for k in range(20) %}{% for i in range(100000) %}{% set x = 1.2345678|round(300) %}{% endfor %}{% endfor %}",
    "real numbers printed": "{% for k in range(20) %}{% for i in range(100000) %}{% set x = 1.2345678e300 ~ '' %}{% endfor %}{% endfor %}",
    "dates": "{% for k in range(20) %}{% for i in range(100000) %}{% set x = strftime_now('%c%c') %}{% endfor %}{% endfor %}",
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
    parser.add_argument("--only", help="regular expression of names")
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
        return library.tsr_status_message(C.c_void_p(error)).decode()[:160] if error else "rendered"

    took = []
    for name, text, variables in cases:
        if asked.only and not re.search(asked.only, name):
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
