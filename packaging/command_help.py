"""What `tessera --help` and `tessera COMMAND --help` say, taken apart: man pages and completions are made of it."""
import dataclasses
import re
import subprocess


@dataclasses.dataclass
class Entry:
    """A line of a table: a positional, an option with all its names, or a command."""
    names: list  # ["-n", "--tokens"], ["model"]
    value: str  # "INT=0", "TEXT REQUIRED", "" for a flag
    text: str


@dataclasses.dataclass
class Help:
    name: str  # "" for the program itself
    summary: str
    tables: dict  # "Options" -> [Entry]
    examples: list
    notes: list  # lines after the examples

    def entries(self, table):
        return self.tables.get(table, [])


SECTION = re.compile(r"^([A-Z][A-Za-z ]*):$")
ROW = re.compile(r"^  (\S.*?)(?:\s{2,}(\S.*))?$")


def entry(left, text):
    words = left.split(" ", 1)
    return Entry(words[0].split(","), words[1] if len(words) > 1 else "", text)


def parse(name, text):
    lines = text.rstrip("\n").split("\n")
    found = Help(name, lines[0], {}, [], [])
    section = None
    for line in lines[1:]:
        if line.startswith("Usage:") or not line:
            continue
        if match := SECTION.match(line):
            section = match[1]
            continue
        if section == "Example" and line.startswith("  "):
            found.examples.append(line[2:])
        elif section == "Example" or section is None:
            found.notes.append(line)
        elif line.startswith("      ") and found.tables.get(section):  # the text of a name that filled the line above
            last = found.tables[section][-1]
            last.text = f"{last.text} {line.strip()}".strip()
        elif match := ROW.match(line):
            found.tables.setdefault(section, []).append(entry(match[1], match[2] or ""))
        else:
            raise SystemExit(f"tessera {name} --help: this line is in no known form: {line!r}")
    return found


EXECUTED = {"serve"}  # programs of their own, which may not be there; packaging/service.sh makes their pages


def read(program):
    """The program's own help, and that of each command that is its own, in order."""
    def ask(*words):
        return subprocess.run([program, *words, "--help"], check=True, capture_output=True, text=True).stdout

    whole = parse("", ask())
    commands = [parse(row.names[0], ask(row.names[0])) for row in whole.entries("Subcommands") if row.names[0] not in EXECUTED]
    assert len(commands) > 5, "the help lists no commands"
    return whole, commands


def version(program):
    return subprocess.run([program, "--version"], check=True, capture_output=True, text=True).stdout.split()[-1]
