#!/usr/bin/env python3
"""check_baseline.py HEADER_FOLDER BASELINE [--write]: tessera.h against the ABI that this SONAME began with.

abidiff (Debian's abigail-tools) may find additions and nothing else: functions and enumerators that are new, and structs
that grew at their end. --write makes the baseline again, which is right when the SONAME changes. First checks that a
parameter of another type, a function less and a member in the middle are found."""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

from header_abi import build

IGNORED = str(pathlib.Path(__file__).with_name("grown_structs.abignore"))
CHANGED, BROKEN = 4, 8  # bits of abidiff's exit status; 1 and 2: it could not compare


def compare(baseline, library):
    """What is not an addition, as text."""
    run = subprocess.run(["abidiff", "--no-added-syms", "--suppressions", IGNORED, baseline, library], capture_output=True, text=True)
    if run.returncode & 3:
        raise SystemExit(f"abidiff: {run.stdout}{run.stderr}")
    return run.stdout if run.returncode & (CHANGED | BROKEN) else ""


def planted(folder, scratch, change):
    """The library of the header after `change`, of which it must have one place."""
    old, new = change
    text = pathlib.Path(folder, "tessera/tessera.h").read_text()
    assert text.count(old) == 1, (old, text.count(old))
    other = pathlib.Path(scratch, "planted/tessera")
    shutil.rmtree(other.parent, ignore_errors=True)
    other.mkdir(parents=True)
    (other / "tessera.h").write_text(text.replace(old, new))
    out = os.path.join(scratch, "planted.so")
    build(str(other.parent), out)
    return out


def main():
    folder, baseline = sys.argv[1:3]
    with tempfile.TemporaryDirectory() as scratch:
        library = os.path.join(scratch, "libtessera.so")
        build(folder, library)
        if "--write" in sys.argv:
            subprocess.run(["abidw", "--no-corpus-path", "--no-comp-dir-path", "--no-show-locs", "--out-file", baseline, library], check=True)
            return print(f"{baseline}: written")
        for change in (("tsr_tensor_rank(const tsr_tensor* tensor);", "tsr_tensor_rank(const tsr_tensor* tensor, int32_t more);"),
                       ("TSR_API int32_t tsr_devices_count(const tsr_devices* devices);", ""),
                       ("  double loss;       /* of the batch, before the update */", "  int64_t more; double loss;")):
            assert compare(baseline, planted(folder, scratch, change)), f"a planted change was not found: {change[1] or 'a function less'}"
        for change in (("  double reward_accuracy;", "  double reward_accuracy; double more;"),
                       ("  TSR_FORKED = 17 ", "  TSR_MORE = 18, TSR_FORKED = 17 "),
                       ("TSR_API void tsr_text_free(tsr_text* text);", "TSR_API void tsr_text_free(tsr_text* text); TSR_API void tsr_more(void);")):
            lost = compare(baseline, planted(folder, scratch, change))
            assert not lost, f"an addition was taken for a change: {change[1]}\n{lost}"
        found = compare(baseline, library)
    print(found or "the ABI is that of the baseline, or more")
    sys.exit(bool(found))


main()
