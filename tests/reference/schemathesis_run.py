#!/usr/bin/env python3
"""schemathesis_run.py SERVE [--venv FOLDER] [--only PATTERN] [--valid]: a service against its own /openapi.json.

Starts SERVE (tessera-serve) with scripted_model.py's model and an empty state, and lets schemathesis, of PyPI, send each path requests that
its document allows and others that it forbids, with all checks: status codes and content types that the document names, replies of its
schemas, headers, methods, no 5xx, no invalid body accepted. Exits with schemathesis' status. FOLDER is a virtual environment, made where it
is missing (default: ~/.cache/tessera/schemathesis). Needs a network for that alone. Never part of `./dev test`."""
import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import venv

import scripted_model

PACKAGE = "schemathesis==4.32.5"
# Keys are off on loopback. --valid: bodies that the document allows are accepted, too; a document cannot say how members depend on each other
# (a tool_choice names one of the tools), and paths that are there to be refused (/api/pull) have no valid body.
WITHOUT = ["ignored_auth"]
VALID = "positive_data_acceptance"


def tool(folder):
    program = folder / "bin" / "st"
    if not program.exists():
        venv.create(folder, with_pip=True)
        subprocess.run([folder / "bin" / "pip", "install", "--quiet", PACKAGE], check=True)
    return program


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("serve", type=pathlib.Path)
    parser.add_argument("--venv", type=pathlib.Path, default=pathlib.Path.home() / ".cache/tessera/schemathesis")
    parser.add_argument("--examples", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--phases", default="coverage,fuzzing", help="of schemathesis; coverage sends each of the large documents 10,000 requests")
    parser.add_argument("--only", default="", help="a pattern of paths")
    parser.add_argument("--valid", action="store_true", help="allowed bodies are accepted, too")
    given = parser.parse_args()
    program = tool(given.venv)
    with tempfile.TemporaryDirectory() as folder:
        model = scripted_model.write_scripted_model(pathlib.Path(folder) / "scripted", {"get_weather": {"city": "Rome"}}, 512)
        with open(os.path.join(folder, "log"), "w+") as log:
            command = [given.serve.resolve(), model, "--port", "0", "--context", "512", "--sequences", "4", "--state", os.path.join(folder, "state")]
            service = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
            try:
                line = next(line for line in service.stderr if '"serving"' in line)
                base = json.loads(line)["url"]
                drain = subprocess.Popen(["cat"], stdin=service.stderr, stdout=log)
                only = ["--include-path-regex", given.only] if given.only else []
                without = ",".join(WITHOUT + [VALID] * (not given.valid))
                found = subprocess.run([
                    program, "run", base + "/openapi.json", "--phases", given.phases, "--checks", "all", "--exclude-checks", without,
                    "--max-examples", str(given.examples), "--seed", str(given.seed), "--request-timeout", "60", "--continue-on-failure",
                    "--suppress-health-check", "too_slow", *only], cwd=folder)
            finally:
                service.terminate()
            if service.wait(timeout=60) != 0:
                sys.exit(f"the service ended with {service.returncode}")
            drain.wait()
            log.seek(0)
            wrong = [line for line in log if re.search('"level":"error"', line)]
            print("".join(wrong[:20]), end="")
            sys.exit(found.returncode or bool(wrong))


if __name__ == "__main__":
    main()
