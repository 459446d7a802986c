#!/usr/bin/env python3
"""Every example of `tessera COMMAND --help`, README.md, docs/ and bindings/*/README.md runs: examples.py BUILD [--full] [--only TEXT] [--times] [-j N].

Shell blocks run in a scratch folder, in their order, with small stand-ins under the names that they read (standins.py). `tessera serve`
runs until the next one of its document, on a port of its own, which `curl` then asks (service.py). C, C++,
Go, Java and Python compile, whole programs run (snippets.py). Without --full the examples of --help alone run, except those
that take more than a second (LONG). An example that cannot run here is marked with its reason, GPU, network or cluster:
  in Markdown   <!-- not run: GPU, the kernels are those of the device --> before the block, for all of it
  in cli/*.cc   // not run: GPU   at the end of the line that holds it
Declarations that a snippet leaves out stand before it as <!-- given: tsr_trainer* trainer; -->."""
import argparse
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

import service
import snippets
import standins

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "packaging"))
import command_help  # noqa: E402

MOST_MARKS = 20
REASONS = ("GPU", "network", "cluster")
LIMIT_S = 600
# Beginnings of examples that only --full runs: searches over clusters, measurements, trainings of many steps.
LONG = ("tessera calibrate", "tessera bench gpt2:", "tessera plan gpt2:L=48", "tessera plan llama:L=32",
        "tessera inspect gpt2:", "tessera train model.tsr --data text.txt --devices cpu:4", "tessera bench model.tsr --mode serve --rate")

# Measurements and long trainings run as they are written, except that they take less time: (text, what runs in its place).
SHORTER = (("tessera calibrate", "tessera calibrate --seconds 3"), ("--rate 2.5 --requests 200", "--rate 2.5 --requests 20"),
           ("--seq 1024 --lora", "--seq 1024 --steps 10 --lora"), ("--seq 1024 --packing bfd", "--seq 1024 --steps 10 --packing bfd"))


class Example:
    """One command of a shell, or one snippet; `folder` names those that share a scratch folder."""

    def __init__(self, folder, place, text, language="sh", given="", mark=None):
        self.folder, self.place, self.text, self.language, self.given, self.mark = folder, place, text, language, given, mark


def commands_of(block):
    """Commands of a block of shell: lines that begin with a program, joined over '\\'."""
    joined = re.sub(r"\\\n\s*", " ", block)
    for line in joined.splitlines():
        line = re.sub(r"^\$ ", "", line.strip())
        if re.match(r"(build/cli/)?tessera |\./dev |tests/\S+\.py |curl ", line):
            yield re.sub(r"^build/cli/", "", line).replace(" build/cli/tessera ", " tessera ")


def marks_in_sources():
    """{command: reason} of lines in cli/ that end with `// not run: REASON`."""
    marks = {}
    for path in sorted((ROOT / "cli").glob("*.cc")):
        for text, reason in re.findall(r'"  (tessera [^"\n]*?)(?:\\n)?"\S*\s*// not run: (.*)', path.read_text()):
            marks[text] = reason
    return marks


def help_examples(tessera):
    marks = marks_in_sources()
    whole, commands = command_help.read(tessera)
    for command in [whole, *commands]:
        found = list(commands_of("\n".join(command.examples)))
        assert found, f"tessera {command.name} --help: no line under \"Example:\" is a command"
        for line in found:
            yield Example(f"help {command.name}", " ".join(["tessera", *command.name.split(), "--help"]), line,
                          mark=next((marks[text] for text in marks if line.startswith(text)), None))


def document_examples():
    documents = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "bindings").glob("*/README.md"))]
    fence = re.compile(r"((?:<!-- (?:not run|given): .*?-->\n)*)^```(\w*)[^\n]*\n(.*?)^```", re.S | re.M)
    for path in documents:
        page = path.read_text()
        name = str(path.relative_to(ROOT))
        for match in fence.finditer(page):
            notes, language, block = match.groups()
            place = f"{name}:{page.count(chr(10), 0, match.start(3))}"
            mark = re.search(r"<!-- not run: (.*?) ?-->", notes, re.S)
            given = re.search(r"<!-- given: (.*?) ?-->", notes, re.S)
            mark, given = mark and mark.group(1), given.group(1) if given else ""
            if language in snippets.LANGUAGES:
                yield Example(name, place, block, language, given, mark)
            else:
                for command in commands_of(block):
                    yield Example(name, place, command, mark=mark)


def run_shell(example, folder, tessera, served):
    standins.provide(example.text, folder, tessera)
    if service.is_one(example.text):
        return served.begin(example.text, folder, tessera)
    text = served.asked(example.text)
    for written, shorter in SHORTER:
        text = text.replace(written, shorter)
    environment = dict(os.environ, PATH=f"{pathlib.Path(tessera).parent}:{os.environ['PATH']}", TESSERA_PROFILE="none",
                       XDG_CACHE_HOME=str(folder / "cache"))
    if any(part in example.text for part in ("tests/", "samples/", "./dev ")):
        for part in ("tests", "samples", "dev"):
            if not (folder / part).exists():
                (folder / part).symlink_to(ROOT / part)
    process = subprocess.run(["bash", "-c", text], cwd=folder, env=environment, input=standins.INPUT, text=True,
                             errors="replace", stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=LIMIT_S)
    return process.returncode, process.stdout


def run_folder(examples, work, arguments):
    """The failures of the examples of one folder, in their order."""
    folder = work / re.sub(r"\W+", "_", examples[0].folder)
    folder.mkdir()
    failures, ran, served = [], 0, service.Service()
    for example in examples:
        begin = time.monotonic()
        try:
            if example.language == "sh":
                status, output = run_shell(example, folder, arguments.tessera, served)
            else:
                status, output = snippets.check(example, folder, arguments)
        except subprocess.TimeoutExpired:
            status, output = 1, f"took more than {LIMIT_S} s"
        ran += 1
        if arguments.times:
            print(f"{time.monotonic() - begin:6.1f} s  {example.place}: {example.text.splitlines()[0][:90]}", flush=True)
        if status != 0:
            shown = example.text if example.language == "sh" else f"this {example.language}"
            failures.append(f"{example.place}: {shown}\n   exit {status}: {output.strip()[-600:]}")
            print(f"FAILED: {failures[-1]}", flush=True)
    if problem := served.end():
        failures.append(f"{examples[0].folder}: tessera serve: {problem}")
        print(f"FAILED: {failures[-1]}", flush=True)
    return ran, failures


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--only", default="", help="examples whose place or text has this")
    parser.add_argument("--times", action="store_true", help="progress: each example and how long it took")
    parser.add_argument("-j", type=int, default=os.cpu_count())
    arguments = parser.parse_args()
    arguments.build = arguments.build.resolve()
    arguments.tessera = str(arguments.build / "cli" / "tessera")

    examples = list(help_examples(arguments.tessera))
    documents = list(document_examples())
    marked = [each for each in examples + documents if each.mark]
    for each in marked:
        assert each.mark.startswith(REASONS), f"{each.place}: marked \"{each.mark}\"; wanted one of {', '.join(REASONS)} first"
    marks = {(each.place, each.mark) for each in marked}
    assert len(marks) <= MOST_MARKS, f"{len(marks)} marks, wanted at most {MOST_MARKS}"
    if arguments.full:
        examples += documents
    chosen = [each for each in examples if not each.mark and arguments.only in f"{each.place} {each.text}" and
              (arguments.full or not each.text.startswith(LONG))]
    folders = {}
    for each in chosen:
        folders.setdefault(each.folder, []).append(each)
    with tempfile.TemporaryDirectory() as scratch:
        work = pathlib.Path(scratch)
        arguments.work = work
        snippets.prepare(chosen, work, arguments)
        measured = [each for each in folders.values() if any(example.text.startswith("tessera calibrate") for example in each)]
        others = sorted((each for each in folders.values() if each not in measured), key=len, reverse=True)
        with concurrent.futures.ThreadPoolExecutor(arguments.j) as pool:
            results = list(pool.map(lambda each: run_folder(each, work, arguments), others))
        results += [run_folder(each, work, arguments) for each in measured]  # while nothing else runs
    failures = [failure for _, each in results for failure in each]
    ran = sum(count for count, _ in results)
    assert ran > 0, "no example was found"
    print(f"{'FAILED' if failures else 'ok'}: examples: {ran - len(failures)} of {ran} run; "
          f"{len(marks)} marked as not run here: {', '.join(sorted(place for place, _ in marks)) or 'none'}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
