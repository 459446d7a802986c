#!/usr/bin/env python3
"""man_pages.py PROGRAM OUT_FOLDER: man pages of the command, made from its own help: tessera.1, tessera-train.1, ..."""
import os
import pathlib
import sys

import command_help

# What tessera.h says of the environment, in short.
ENVIRONMENT = (("TESSERA_THREADS", "threads that kernels may use"),
               ("TESSERA_PLUGIN_PATH", "folder of backend plugins"),
               ("TESSERA_LOG", "debug, info, warning or error: the least severe record that is kept"),
               ("TESSERA_PROFILE", "device profile that prices plans: a file, auto or none"),
               ("XDG_CACHE_HOME", "where profiles lie that nobody named a place for (else ~/.cache)"),
               ("TMPDIR", "where tensors offloaded to file go"))


def escaped(text):
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return "\\&" + text if text[:1] in (".", "'") else text


def bold(text):
    return f"\\fB{escaped(text)}\\fR"


def verbatim(lines):
    return ["", ".nf", *(escaped(line) for line in lines), ".fi"]


def table(entries):
    page = []
    for row in entries:
        page += [".TP", ", ".join(bold(name) for name in row.names) + (f" \\fI{escaped(row.value)}\\fR" if row.value else ""),
                 escaped(row.text) or "\\&"]
    return page


def page(title, summary, release, sections):
    lines = [f'.TH {title.upper().replace("-", chr(92) + "-")} 1 "" "Tessera {release}" "User Commands"',
             ".SH NAME", f"{escaped(title)} \\- {escaped(summary.rstrip('.'))}"]
    for name, body in sections:
        if body:
            lines += [f".SH {name}", *body]
    return "\n".join(lines) + "\n"


def command_page(help, release):
    positionals = " ".join(f"\\fI{escaped(row.names[0])}\\fR" for row in help.entries("Positionals"))
    other = [(name.upper(), table(rows)) for name, rows in help.tables.items() if name not in ("Positionals", "Options")]
    return page(f"tessera-{help.name}", help.summary, release, [
        ("SYNOPSIS", [f"{bold('tessera ' + help.name)} [\\fIoptions\\fR] {positionals}".rstrip()]),
        ("ARGUMENTS", table(help.entries("Positionals"))), ("OPTIONS", table(help.entries("Options"))), *other,
        ("NOTES", verbatim(help.notes) if help.notes else []), ("EXAMPLES", verbatim(help.examples)),
        ("SEE ALSO", [f"{bold('tessera')}(1)"])])


def main():
    program, folder = os.path.abspath(sys.argv[1]), pathlib.Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    release = command_help.version(program)
    whole, commands = command_help.read(program)
    for help in commands:
        (folder / f"tessera-{help.name}.1").write_text(command_page(help, release))
    listed = []
    for row in whole.entries("Subcommands"):
        listed += [".TP", f"{bold('tessera-' + row.names[0])}(1)", escaped(row.text)]
    (folder / "tessera.1").write_text(page("tessera", whole.summary, release, [
        ("SYNOPSIS", [f"{bold('tessera')} \\fIcommand\\fR [\\fIoptions\\fR]"]), ("COMMANDS", listed),
        ("OPTIONS", table(whole.entries("Options"))), ("EXAMPLES", verbatim(whole.examples)),
        ("NOTES", verbatim(whole.notes)),
        ("ENVIRONMENT", table([command_help.Entry([name], "", text) for name, text in ENVIRONMENT]))]))
    print(f"{len(commands) + 1} man pages in {folder}")


main()
