#!/usr/bin/env python3
"""Functions that nothing in the product reaches fail: check.py ROOT, or check.py --self-test.

Functions are known by name: one is reached if its name stands in a function that is reached, or outside of functions. What
tests alone call is not reached. Overloads and members of the same name count as one, so the check finds no dead overload.
"""
import pathlib
import re
import sys
import tempfile

FOLDERS = ("graph", "text", "parallel", "runtime", "serialize", "engine", "capi", "cli")
ENDINGS = (".cc", ".h", ".cu", ".cuh", ".inc")
NOISE = re.compile(r'R"(\w*)\(.*?\)\1"|//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|(?<![\w])\'(?:\\.|[^\'\\\n])+\'', re.S)
DIRECTIVE = re.compile(r"^[ \t]*#([^\n]*(?:\\\n[^\n]*)*)", re.M)
OUTER = re.compile(r"(?:inline\s+)?namespace\b|extern\s*\"\"$|(?:template\s*<.*>\s*)?(?:class|struct|union)\b(?!.*\)\s*(?:const)?\s*$)", re.S)
WORD = re.compile(r"[A-Za-z_]\w*")
NOT_NAMES = {"alignas", "decltype", "noexcept", "requires", "sizeof", "defined", "if", "for", "while", "switch", "return",
             "static_assert", "operator", "explicit", "catch", "__launch_bounds__", "__attribute__", "constexpr"}
# Called by name from outside of these folders, each with who calls it.
CALLED_FROM_OUTSIDE = {
    "main": "the system",
    "largest_encodable": "tests that go to the ends of a type",
    **{f"{file.stem}_families": "family_list.inc, which the build makes of the folder"
       for file in (pathlib.Path(__file__).resolve().parents[2] / "graph/models/families").glob("*.cc")},
    **{table: "tests that try every row of a table" for table in
       ("all_model_families", "all_tests", "builtin_names", "container_method_names", "text_method_names", "fusion_patterns")},
}


def plain(text):
    """The text without comments, strings and directives; macros' bodies stay, as uses."""
    text = NOISE.sub(lambda m: ' "" ' if m.group()[0] in "\"R" else " ", text)
    macros = []

    def keep(match):
        found = re.match(r"\s*define\s+\w+(?:\([^)]*\))?(.*)", match.group(1), re.S)
        if found:
            macros.append(found.group(1).replace("\\", " "))
        return ""

    return DIRECTIVE.sub(keep, text), " ".join(macros)


def without_template(statement):
    while statement.startswith("template"):
        depth = 0
        for at, letter in enumerate(statement):
            depth += (letter == "<") - (letter == ">")
            if letter == ">" and depth == 0:
                break
        else:
            return statement
        statement = statement[at + 1:].lstrip()
    return statement


def declared_function(statement):
    """The name that a statement outside of functions declares, None where it declares none."""
    head = without_template(re.sub(r"\[\[.*?\]\]", "", statement))
    head = re.sub(r"^(?:public|private|protected)\s*:\s*", "", head)
    if head.startswith(("using", "typedef", "friend", "enum")):
        return None
    equals = re.search(r"(?<![=!<>])=(?!=)", head)
    for call in re.finditer(r"(~?\b[A-Za-z_]\w*)\s*\(", head):
        if equals and equals.start() < call.start():
            return None
        if call.group(1).startswith("~"):
            return None
        if call.group(1) in NOT_NAMES or call.group(1).startswith("TSR_"):
            continue
        before = head[:call.start()].rstrip()
        # A constructor or destructor, or the initializer of one.
        if not before or before.endswith(("~", ",")) or (before.endswith(":") and not before.endswith("::")):
            return None
        return call.group(1)
    return None


def read(text):
    """Yields (function, words): words that stand in its body, or outside of functions (None)."""
    text, macros = plain(text)
    yield None, WORD.findall(macros)
    stack, start, body = [], 0, None
    for match in re.finditer(r"[{};]", text):
        letter, at = match.group(), match.start()
        if body is not None:
            if letter == "{":
                stack.append("inner")
            elif letter == "}":
                stack.pop()
                if len(stack) == body[1]:
                    yield body[0], WORD.findall(text[body[2]:at])
                    body, start = None, match.end()
            continue
        statement = text[start:at].strip()
        if letter == "}":
            if statement:
                yield None, WORD.findall(statement)
            if stack:
                stack.pop()
            start = match.end()
            continue
        if letter == "{" and OUTER.match(without_template(re.sub(r"^(?:public|private|protected)\s*:\s*", "", statement))):
            yield None, [w for w in WORD.findall(statement)]
            stack.append("outer")
            start = match.end()
            continue
        name = declared_function(statement)
        if name is None or letter == ";":
            words = WORD.findall(statement)
            if name in words:
                words.remove(name)
            virtual = name is not None and re.search(r"\b(?:virtual|override)\b", statement)
            yield None, words + ([name] if virtual else [])
            if name is not None:
                yield name, []
            start = match.end()
            if letter == "{":  # an initializer, an enum
                body = (None, len(stack), match.end())
                stack.append("inner")
            continue
        words = WORD.findall(statement)
        words.remove(name)
        if re.search(r"\b(?:virtual|override)\b", statement):
            yield None, [name]
        yield name, words
        body = (name, len(stack), match.end())
        stack.append("inner")
        start = match.end()


def unreached(root):
    root = pathlib.Path(root)
    uses, declared, outside = {}, {}, set(CALLED_FROM_OUTSIDE)
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix not in ENDINGS or not path.is_file():
                continue
            public = "include/tessera" in path.as_posix()
            for name, words in read(path.read_text()):
                if name is None:
                    outside.update(words)
                    continue
                if public:
                    outside.add(name)
                declared.setdefault(name, path.relative_to(root).as_posix())
                uses.setdefault(name, set()).update(words)
    reached, waiting = set(), [name for name in uses if name in outside]
    while waiting:
        name = waiting.pop()
        if name in reached:
            continue
        reached.add(name)
        waiting += [word for word in uses[name] if word in uses and word not in reached]
    return sorted((path, name) for name, path in declared.items() if name not in reached)


def self_test():
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        (root / "engine").mkdir()
        (root / "cli").mkdir()
        (root / "cli/main.cc").write_text("int main() { return used(1) + Box().size(); }\n")
        (root / "engine/box.h").write_text(
            "namespace t {\nint used(int);\nint dead(int);\nint only_of_dead();\n"
            "class Box {\n public:\n  int size() const { return n_; }\n  int idle() const;\n private:\n  int n_ = 0;\n};\n}\n")
        (root / "engine/box.cc").write_text(
            "namespace t {\nint used(int n) { return n; }\nint dead(int n) { return n ? dead(n - 1) : only_of_dead(); }\n"
            "int only_of_dead() { return 1; }\nint Box::idle() const { return 2; }  // dead, idle\n}\n")
        found = [name for _, name in unreached(root)]
        assert found == ["dead", "idle", "only_of_dead"], found
    print("ok: planted dead functions are found")


if __name__ == "__main__":
    if sys.argv[1:] == ["--self-test"]:
        self_test()
        sys.exit(0)
    dead = unreached(sys.argv[1] if len(sys.argv) > 1 else ".")
    for path, name in dead:
        print(f"{path}: nothing in the product reaches {name}()")
    print(f"reachability: {len(dead)} functions that nothing reaches")
    sys.exit(bool(dead))
