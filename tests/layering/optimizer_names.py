"""Holds that an optimizer is one file and one row (docs/guides/add-an-optimizer.md).

No optimizer's name stands in the library or the command outside graph/optim, except with its reason in a comment above
it, which begins "By name:". And what is read by users names every optimizer of the table: the C header, the help of
`tessera train` and the reference."""
import pathlib
import re
import tempfile

FOLDERS = ["graph", "parallel", "serialize", "runtime", "engine", "capi", "cli"]
SUFFIXES = {".h", ".cc", ".cu", ".cuh"}
READ_BY_USERS = ["capi/include/tessera/tessera.h", "cli/train_arguments.cc", "docs/reference/optimizers.md"]


def names(root):
    found = set()
    for file in sorted((root / "graph/optim").glob("*.cc")):
        found |= set(re.findall(r'extern const OptimizerDef \w+ = \{\s*\.name = "(\w+)"', file.read_text()))
    return found


def violations(root):
    known, bad = names(root), []
    for folder in FOLDERS:
        for file in sorted((root / folder).rglob("*")):
            name = file.relative_to(root).as_posix()
            if file.suffix not in SUFFIXES or name.startswith("graph/optim/"):
                continue
            lines = file.read_text(errors="replace").split("\n")
            for row, line in enumerate(lines):
                code = re.sub(r"//.*", "", line)
                found = [it for it in re.findall(r'"(\w+)"', code) if it in known]
                # A reason holds for the rows of a list that follow it.
                above = row
                while above > 0 and any(f'"{it}"' in lines[above] for it in known):
                    above -= 1
                if found and not any("By name: " in it for it in lines[max(0, above - 2):row + 1]):
                    bad.append(f'{name}:{row + 1}: names optimizer "{found[0]}"; ask its row (graph/optim/optimizer.h), or say '
                               'why above it ("By name: ...")')
    for name in READ_BY_USERS:
        text = (root / name).read_text() if (root / name).exists() else ""
        bad += [f"{name}: does not name optimizer '{it}'" for it in sorted(known) if not re.search(rf"\b{it}\b", text)]
    if not known:
        bad.append("graph/optim has no optimizers")
    return bad


def self_test():
    with tempfile.TemporaryDirectory() as scratch:
        root = pathlib.Path(scratch)
        for folder in ("graph/optim", "graph/transform"):
            (root / folder).mkdir(parents=True)
        (root / "graph/optim/sophia.cc").write_text('extern const OptimizerDef kSophia = {\n    .name = "sophia"};\n')
        for name in READ_BY_USERS:
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text("sophia\n")
        other = root / "graph/transform/x.cc"
        for line, wanted in (('if (name == "sophia") return;', 1), ('// By name: a reason.\nif (name == "sophia") return;', 0)):
            other.write_text(line + "\n")
            if len(violations(root)) != wanted:
                return [f"optimizer names self-test: {line}"]
        (root / READ_BY_USERS[0]).write_text("\n")
        if len(violations(root)) != 1:
            return ["optimizer names self-test: a document that leaves one out was not caught"]
    return []
