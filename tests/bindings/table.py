#!/usr/bin/env python3
"""table.py [ROOT]: what the C library can do and a language's layer cannot, which must be nothing.

A function of tessera.h counts as reached where the hand-written layer of a language calls it as the raw layer has it:
raw.Tsr_x in Go, Raw.tsr_x or Raw::tsr_x in Java, raw.tsr_x in Python, or raw.tsr_raw_x where bindings/tessera.i or the
language's own file puts that in its place. A language counts once its folder is there. First plants a function that
nothing calls, and one call less, and checks that both are found."""
import pathlib
import re
import sys

FUNCTION = re.compile(r"^TSR_API [^(]*?\b(tsr_\w+)\(", re.M)
CALL = re.compile(r"\b[Rr]aw(?:\.|::)[Tt]sr_(?:raw_)?(\w+)\b")
LAYERS = {"go": "*.go", "java": "**/*.java", "python": "**/*.py"}


def functions(header):
    found = FUNCTION.findall(header)
    assert len(found) > 150, f"{len(found)} functions found in the header: the expression no longer fits it"
    return found


def missing(names, sources):
    called = {name for text in sources for name in CALL.findall(text)}
    return [name for name in names if name.removeprefix("tsr_") not in called]


root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parents[2])
header = (root / "capi/include/tessera/tessera.h").read_text()
names = functions(header)
sources = {language: [path.read_text() for path in sorted((root / "bindings" / language).glob(pattern))]
           for language, pattern in LAYERS.items() if (root / "bindings" / language).is_dir()}
assert "go" in sources
assert "tsr_not_there" in missing(functions(header + "\nTSR_API tsr_status* tsr_not_there(void);"), sources["go"])
assert "tsr_model_load" in missing(names, [re.sub(r"raw\.Tsr_model_load\b", "", text) for text in sources["go"]])
lost = {language: missing(names, texts) for language, texts in sources.items()}
for language, gone in lost.items():
    print(f"{language}: {len(names) - len(gone)} of {len(names)} functions" + "".join(f"\n  {name}" for name in gone))
sys.exit(any(lost.values()))
