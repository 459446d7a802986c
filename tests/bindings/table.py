#!/usr/bin/env python3
"""table.py: what the C library can do and a language's layer cannot, which must be nothing.

A function of tessera.h counts as reached where the hand-written layer of a language calls it as the raw layer has it:
raw.Tsr_x in Go, Raw.tsr_x or Raw::tsr_x in Java, raw.tsr_x in Python, or raw.tsr_raw_x where bindings/tessera.i or the
language's own file puts that in its place. First plants a function that nothing calls, and one call less, and
checks that both are found."""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tests/abi"))
from public_header import functions  # noqa: E402

CALL = re.compile(r"\b[Rr]aw(?:\.|::)[Tt]sr_(?:raw_)?(\w+)\b")
LAYERS = {"go": "*.go", "java": "**/*.java", "python": "**/*.py"}


def missing(names, sources):
    called = {name for text in sources for name in CALL.findall(text)}
    return [name for name in names if name.removeprefix("tsr_") not in called]


header = (ROOT / "capi/include/tessera/tessera.h").read_text()
names = [name for _, name, _ in functions(header)]
sources = {language: [path.read_text() for path in sorted((ROOT / "bindings" / language).glob(pattern))]
           for language, pattern in LAYERS.items()}
assert "tsr_not_there" in missing(names + ["tsr_not_there"], sources["go"])
assert "tsr_model_load" in missing(names, [re.sub(r"raw\.Tsr_model_load\b", "", text) for text in sources["go"]])
lost = {language: missing(names, texts) for language, texts in sources.items()}
for language, gone in lost.items():
    print(f"{language}: {len(names) - len(gone)} of {len(names)} functions" + "".join(f"\n  {name}" for name in gone))
sys.exit(any(lost.values()))
