"""Blocks of C, C++, Go, Java and Python in documents: all are compiled or parsed, whole programs run."""
import ast
import os
import pathlib
import re
import subprocess
import sys

import standins

ROOT = pathlib.Path(__file__).resolve().parents[2]
LANGUAGES = {"c", "cpp", "go", "java", "python"}


def _run(words, folder, **environment):
    process = subprocess.run(words, cwd=folder, env=dict(os.environ, **environment), text=True, errors="replace",
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=600)
    return process.returncode, process.stdout


def prepare(examples, work, arguments):
    """Builds the bindings that the chosen examples need."""
    languages = {each.language for each in examples}
    library = arguments.build / "capi"
    (work / "tessera.pc").write_text(f"Name: tessera\nDescription: tessera\nVersion: 0\nCflags: -I{ROOT}/capi/include\n"
                                     f"Libs: -L{library} -ltessera\nlibdir={library}\nincludedir={ROOT}/capi/include\n")
    environment = {"PKG_CONFIG_PATH": str(work), "LD_LIBRARY_PATH": str(library)}
    for language in ("python", "java"):
        if language not in languages:
            continue
        status, output = _run(["bash", str(ROOT / "bindings" / language / "build.sh"), str(work / language)], work, **environment)
        assert status == 0, f"bindings/{language}/build.sh: {output[-800:]}"


def _c(example, folder, arguments):
    includes = ["-I", str(ROOT / "capi/include")]
    if "int main" in example.text:
        (folder / "example.c").write_text(example.text)
        library = str(arguments.build / "capi")
        status, output = _run(["cc", "-std=c11", "-Wall", "-Werror", "example.c", *includes, "-L", library, "-ltessera", "-o", "example"], folder)
        if status != 0:
            return status, output
        for name in re.findall(r'"([\w.-]+\.\w+)"', example.text):
            standins.provide(name, folder, arguments.tessera)
        return _run(["./example"], folder, LD_LIBRARY_PATH=library)
    body = f"#define TSR_UNSTABLE_API\n#include <stdio.h>\n#include <tessera/tessera.h>\nvoid example(void) {{\n{example.given}\n{example.text}\n}}\n"
    (folder / "example.c").write_text(body)
    return _run(["cc", "-std=c11", "-fsyntax-only", "-Werror=implicit-function-declaration", "-Werror=incompatible-pointer-types", "-Wno-unused", "example.c", *includes], folder)


def _cpp(example, folder, arguments):
    given = example.given.split("----")
    (folder / "example.cc").write_text(f"{given[0]}\ntessera::Status example({given[1]}) {{\n{example.text}\nreturn {{}};\n}}\n")
    return _run(["c++", "-std=c++20", "-fsyntax-only", "-I", str(ROOT), "-I", str(arguments.build), "example.cc"], folder)


def _go(example, folder, arguments):
    (folder / "example.go").write_text(f"package main\n\nfunc example() {{\n{example.text}\n}}\n")
    return _run(["gofmt", "-e", "-l", "example.go"], folder)[0], ""


def _java(example, folder, arguments):
    text = example.text
    if "class " not in text:
        imports = "import dev.tessera.*;\nimport dev.tessera.Runtime;\nimport java.nio.file.Path;\nimport java.util.*;\nimport java.util.concurrent.*;\n"
        text = f"{imports}public class Example {{\n static void run({example.given}) throws Exception {{\n{text}\n}}\n}}\n"
    (folder / "Example.java").write_text(text)
    return _run(["javac", "-cp", str(arguments.work / "java" / "tessera.jar"), "-d", "classes", "Example.java"], folder)


def _python(example, folder, arguments):
    ast.parse(example.text)
    if not re.search(r"^import tessera", example.text, re.M):
        return 0, ""
    written = set(re.findall(r'\bout="([\w.-]+)"', example.text))
    for name in re.findall(r'"([\w.-]+\.\w+)"', example.text):
        if name not in written:
            standins.provide(name, folder, arguments.tessera)
    (folder / "example.py").write_text(example.text)
    return _run([sys.executable, "example.py"], folder, PYTHONPATH=str(arguments.work / "python"),
                LD_LIBRARY_PATH=str(arguments.build / "capi"), TESSERA_PROFILE="none")


def check(example, folder, arguments):
    try:
        return {"c": _c, "cpp": _cpp, "go": _go, "java": _java, "python": _python}[example.language](example, folder, arguments)
    except SyntaxError as error:
        return 1, str(error)
