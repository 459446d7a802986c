#!/usr/bin/env python3
"""Which source files of a target are compiled together (TSR_BATCHES): one line `batch file` for each that shares.

    batches.py LINES FILE...

A batch has about LINES lines. Files that say the same name differently - local types, functions, constants, macros,
`using namespace` outside of a namespace - never share one, so that a name local to a file may be used again in another.
A file joins the first batch that has room. Batches of one file are not listed.
"""
import pathlib
import re
import sys

NOISE = re.compile(
    r'R"(\w*)\(.*?\)\1"|//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|(?<![\w])\'(?:\\.|[^\'\\\n])+\'', re.S)
DIRECTIVE = re.compile(r"^[ \t]*#[^\n]*(?:\\\n[^\n]*)*", re.M)
NAMESPACE = re.compile(r"(?:inline\s+)?namespace(?:\s+[\w:]+)?$")
TYPE = re.compile(r"(?:struct|class|enum\s+class|enum|union|concept)\s+(\w+)", re.S)
WORDS_BEFORE_PARENTHESES = {"alignas", "decltype", "noexcept", "requires", "sizeof", "defined", "__launch_bounds__",
                            "static_assert", "TEST_CASE", "TEST_SUITE", "operator"}
# What compiles itself several times over, by its own name, and what replaces functions of the language.
ALONE = re.compile(r"foreach_target\.h|void\s*\*\s*operator new")


def statements(text):
    """Pairs (in an anonymous namespace or static, what stands before `{` or `;`) outside of functions and types."""
    inside, start = [], 0
    for match in re.finditer(r"[{};]", text):
        before = text[start:match.start()].strip()
        start = match.end()
        outside = all(kind != "body" for kind in inside)
        local = "anonymous" in inside or before.startswith("static ")
        if match.group() == "{":
            if outside and NAMESPACE.match(before):
                inside.append("anonymous" if before.endswith("namespace") else "named")
                continue
            inside.append("body")
        elif match.group() == "}":
            if inside:
                inside.pop()
            continue
        if outside and before:
            yield local, before


def without_template(statement):
    """The statement behind its `template <...>`."""
    while statement.startswith("template"):
        depth = at = 0
        for at, letter in enumerate(statement):
            depth += (letter == "<") - (letter == ">")
            if letter == ">" and depth == 0:
                break
        statement = statement[at + 1:].lstrip()
    return statement


def names(text):
    """(names local to the file, all names that it defines outside of functions)"""
    macros = set(re.findall(r"^[ \t]*#[ \t]*define[ \t]+(\w+)", text, re.M))
    text = DIRECTIVE.sub("", NOISE.sub(lambda m: ' "" ' if m.group()[0] in "\"R'" else " ", text))
    local, all_names = set(macros), set(macros)
    for is_local, statement in statements(text):
        if statement.startswith("using namespace"):
            continue
        found = set()
        type_name = TYPE.match(without_template(statement))
        alias = re.match(r"(?:using|namespace)\s+(\w+)\s*=", statement)
        if alias:
            is_local = True
            found.add(alias.group(1))
        elif type_name:
            found.add(type_name.group(1))
        else:
            head = re.split(r"(?<![=!<>])=(?!=)", without_template(statement))[0]
            called = [w for w in re.findall(r"(\w+)\s*\(", head) if w not in WORDS_BEFORE_PARENTHESES]
            found.update(called[:2] if called else re.findall(r"(\w+)\s*(?:\[[^\]]*\]\s*)*$", head))
            if not called:  # several constants in one statement
                found.update(re.findall(r"(\w+)\s*(?:\[[^\]]*\]\s*)*=(?!=)", statement))
        found = {name for name in found if not name[0].isdigit() and name != "void"}
        all_names |= found
        if is_local:
            local |= found
    return local, all_names


def header_names(path, root, known, text=None, more=lambda text: set()):
    """All names that the project's headers define of which a file includes one, itself or through others."""
    found = set()
    for header in re.findall(r'^[ \t]*#[ \t]*include[ \t]+["<]([^">]+)[">]', text or path.read_text(), re.M):
        at = next((a for a in (root / header, path.parent / header, root / "capi/include" / header) if a.is_file()), None)
        if at is None:
            continue
        if at not in known:
            known[at] = set()  # of headers that include each other, the first
            header_text = at.read_text()
            known[at] = names(header_text)[1] | more(header_text) | header_names(at, root, known, header_text, more)
        found |= known[at]
    return found


class Source:
    def __init__(self, path, root, known):
        self.path = path
        text = pathlib.Path(path).read_text()
        self.lines = text.count("\n")
        self.alone = bool(ALONE.search(text))
        self.local, self.names = names(text)
        self.headers = header_names(pathlib.Path(path), root, known)
        # What it opens for all that follows it.
        self.opened = frozenset(re.findall(r"^(using namespace [\w:]+);", text, re.M))

    def hides(self, other):
        return self.local & (other.names | other.headers - self.headers)

    def clashes(self, other):
        return bool(self.hides(other) or other.hides(self))


def batches(paths, lines):
    made, known, root = [], {}, pathlib.Path(__file__).resolve().parents[2]
    for path in paths:
        source = Source(path, root, known)
        home = next((b for b in made if not source.alone and not b[0].alone and b[0].opened == source.opened
                     and sum(s.lines for s in b) + source.lines <= lines
                     and not any(source.clashes(s) for s in b)), None)
        if home is None:
            made.append([source])
        else:
            home.append(source)
    return made


def main():
    number = 0
    for batch in batches(sys.argv[2:], int(sys.argv[1])):
        if len(batch) > 1:
            number += 1
            for source in batch:
                print(f"{number} {source.path}")


if __name__ == "__main__":
    main()
