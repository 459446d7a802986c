#!/usr/bin/env python3
"""completions.py PROGRAM OUT_FOLDER: completions for bash, zsh and fish, made from the command's own help."""
import os
import pathlib
import re
import sys

import command_help

# Values that an option lists as `a | b | c` or `a, b or c`, in words alone, can be completed too.
WORD = r"[a-z0-9_]+(?: \(default\))?"
CHOICES = re.compile(rf"^(?:{WORD}(?: \| {WORD})+|{WORD}(?:, {WORD})* or {WORD})(?=$|[,:;.]| \()")


def choices(row):
    found = CHOICES.match(row.text)
    return re.split(r", | or | \| ", found[0].replace(" (default)", "")) if row.value.startswith("TEXT") and found else []


def options(help):
    return [row for row in help.entries("Options") if row.names[0].startswith("-")]


def bash(whole, commands):
    lines = ["# bash completion for tessera", "_tessera() {",
             '  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} command=${COMP_WORDS[1]}',
             "  COMPREPLY=()", "  if [ \"$COMP_CWORD\" -eq 1 ]; then",
             f'    mapfile -t COMPREPLY < <(compgen -W "{" ".join(row.names[0] for row in whole.entries("Subcommands"))} --help --version" -- "$word")',
             "    return", "  fi", "  case $command:$before in"]
    for help in commands:
        for row in options(help):
            if values := choices(row):
                names = "|".join(f"{help.name}:{name}" for name in row.names)
                lines.append(f'    {names}) mapfile -t COMPREPLY < <(compgen -W "{" ".join(values)}" -- "$word"); return ;;')
    lines += ["  esac", '  [ "${word:0:1}" = - ] || return', "  case $command in"]
    for help in commands:
        names = " ".join(name for row in options(help) for name in row.names)
        lines.append(f'    {help.name}) mapfile -t COMPREPLY < <(compgen -W "{names}" -- "$word") ;;')
    return "\n".join(lines + ["  esac", "}", "complete -o default -F _tessera tessera"]) + "\n"


def quoted(text):
    return "'" + text.replace("'", "'\\''") + "'"


def zsh(whole, commands):
    def shown(text):
        return re.sub(r"([\[\]:\\])", r"\\\1", text)

    lines = ["#compdef tessera", "_tessera() {", "  if (( CURRENT == 2 )); then", "    local -a commands=("]
    lines += [f"      {quoted(row.names[0] + ':' + shown(row.text))}" for row in whole.entries("Subcommands")]
    lines += ["    )", "    _describe command commands", "    return", "  fi", "  local command=$words[2]", "  shift words", "  (( CURRENT-- ))",
              "  case $command in"]
    for help in commands:
        specs = []
        for row in options(help):
            value = ""
            if row.value:
                value = ":value:" + (f"({' '.join(choices(row))})" if choices(row) else "_files")
            specs += [quoted(f"{name}[{shown(row.text)}]{value}") for name in row.names]
        lines += [f"    {help.name})", "      _arguments \\", *(f"        {spec} \\" for spec in specs), "        '*:file:_files' ;;"]
    return "\n".join(lines + ["  esac", "}", '_tessera "$@"']) + "\n"


def fish(whole, commands):
    lines = ["# fish completion for tessera"]
    for row in whole.entries("Subcommands"):
        lines.append(f"complete -c tessera -n __fish_use_subcommand -a {row.names[0]} -d {quoted(row.text)}")
    for help in commands:
        for row in options(help):
            names = " ".join(f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in row.names)
            value = " -r" if row.value else ""
            if found := choices(row):
                value = f" -x -a {quoted(' '.join(found))}"
            lines.append(f"complete -c tessera -n '__fish_seen_subcommand_from {help.name}' {names}{value} -d {quoted(row.text)}")
    return "\n".join(lines) + "\n"


def main():
    program, folder = os.path.abspath(sys.argv[1]), pathlib.Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    read = command_help.read(program)
    for name, made in (("tessera.bash", bash), ("_tessera", zsh), ("tessera.fish", fish)):
        (folder / name).write_text(made(*read))
    print(f"completions for {len(read[1])} commands in {folder}")


main()
