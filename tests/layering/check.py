#!/usr/bin/env python3
"""Holds the include table of docs/architecture.md: fails on any edge between folders that it does not allow.

And on fractions printed by printf in the library: their decimal point is the host application's, so that a plan's
fingerprint, say, would change with setlocale. And on ops and optimizers that are asked for their names (op_names.py,
optimizer_names.py), and on imports between packages of service/ (service_imports.py). First plants one violation per rule in a scratch tree and checks that each is caught."""
import pathlib
import re
import sys
import tempfile

import op_names
import optimizer_names
import service_imports

# folder -> project folders that it may include (longest prefix wins on both sides).
ALLOWED = {
    "graph/base": ["graph/base"],
    "graph": ["graph"],
    "parallel/search": ["parallel/search", "graph"],
    "parallel/sharding": ["parallel/sharding", "graph"],
    "parallel/pipeline": ["parallel/pipeline", "graph"],
    "parallel/strategy": ["parallel/strategy", "parallel/sharding", "parallel/pipeline", "graph"],
    "parallel/lowering": ["parallel/lowering", "parallel/sharding", "parallel/pipeline", "graph"],
    "parallel/pricing": ["parallel/pricing", "parallel/lowering", "parallel/sharding", "graph"],
    "parallel/composition": ["parallel/composition", "parallel/pricing", "parallel/lowering", "parallel/strategy",
                             "parallel/sharding", "parallel/pipeline", "graph"],
    "parallel/planner": ["parallel", "graph"],
    "text": ["text", "graph/base"],
    "text/tokenizer": ["text/tokenizer", "text/json.h", "text/python_json.h", "text/repeated_keys.h", "graph/base"],
    "text/jinja": ["text/jinja", "text/json.h", "text/repeated_keys.h", "graph/base"],
    "text/grammar": ["text/grammar", "text/tokenizer/tokenizer.h", "text/json.h", "text/repeated_keys.h", "graph/base"],
    "text/answer": ["text/answer", "text/grammar", "text/chat_template.h", "text/json.h", "text/repeated_keys.h", "graph/base"],
    "serialize": ["serialize", "text", "graph"],
    "serialize/training_data": ["serialize/training_data", "serialize/atomic_file.h", "serialize/hash_stream.h",
                                "text/json.h", "text/repeated_keys.h", "text/chat_template.h", "text/assistant_tokens.h",
                                "text/tokenizer", "graph/base"],
    "runtime": ["runtime", "graph", "!runtime/backends", "!runtime/transports"],
    "runtime/transports/mpi": ["runtime/transports/mpi", "runtime/transport_abi.h", "graph/base"],
    "runtime/backends/cpu": ["runtime/backends/cpu", "runtime/backend_abi.h", "runtime/backend_adapter.h",
                             "runtime/backend_table.h", "runtime/backend_collective.h", "graph/base"],
    "runtime/backends/null": ["runtime/backends/null", "runtime/backend_abi.h", "runtime/backend_adapter.h",
                             "runtime/backend_table.h", "runtime/backend_collective.h", "graph/base"],
    "runtime/backends/cuda": ["runtime/backends/cuda", "runtime/backend_abi.h", "runtime/backend_adapter.h",
                             "runtime/backend_table.h", "runtime/backend_collective.h", "graph/base"],
    "capi": ["capi", "engine", "graph"],
    "cli": ["cli", "tessera"],
    "samples": ["samples", "tessera"],
    "bindings": ["bindings", "tessera"],
}
# Rooms of the engine: each includes those before it, and the layers below.
ROOMS = ["base", "model", "data", "sampling", "settings", "program", "serving/pages", "serving/adapters", "serving/texts",
         "serving/scheduler", "serving/replicas", "inference", "training", "planning", "calibration"]
MOST_FILES = 45  # of a room
for at, room in enumerate(ROOMS):
    ALLOWED[f"engine/{room}"] = [f"engine/{it}" for it in ROOMS[:at + 1]] + [
        "graph", "parallel", "runtime", "text", "serialize", "!runtime/backends"]
ROOTS = ["graph", "parallel", "text", "serialize", "runtime", "engine", "capi", "cli", "samples", "bindings"]
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^">]+)[">]', re.M)
FRACTION = re.compile(r'printf\([^;]*?%[-+ #0]*[0-9*]*(?:\.[0-9*]*)?l?[aefgAEFG]')
BY_LOCALE = ["cli", "samples", "bindings"]  # programs, which never call setlocale
# Programs on the public header alone, and what else they may include with a path: libraries that they bring themselves.
BROUGHT = {"cli": {"CLI/CLI.hpp", "nlohmann/json.hpp"}}
SUFFIXES = {".h", ".cc", ".c", ".cu", ".cuh", ".cpp", ".hpp", ".i"}


def under(path, prefix):
    return path == prefix or path.startswith(prefix + "/")


def rule_for(path):
    best = max((folder for folder in ALLOWED if under(path, folder)), key=len, default=None)
    return best, ALLOWED.get(best, [])


def violations(root):
    found = []
    for top in ROOTS:
        for file in sorted((root / top).rglob("*")):
            if file.suffix not in SUFFIXES:
                continue
            name = file.relative_to(root).as_posix()
            folder, allowed = rule_for(name)
            text = file.read_text(errors="replace")
            if top not in BY_LOCALE and FRACTION.search(text):
                found.append(f"{name}: printf of a fraction follows the host's locale; take format or std::to_chars")
            for target in INCLUDE.findall(text):
                if top in BROUGHT and "/" in target and target not in BROUGHT[top] and not under(target, "tessera") \
                        and not target.startswith("sys/"):
                    found.append(f"{name}: includes {target}; {top} may include the standard library, tessera and "
                                 f"{', '.join(sorted(BROUGHT[top]))}")
                    continue
                project = any(under(target, r) for r in ROOTS)
                if not project:
                    continue
                ok = any(under(target, a) for a in allowed if not a.startswith("!"))
                if any(under(target, a[1:]) for a in allowed if a.startswith("!")):
                    ok = False
                if not ok:
                    found.append(f"{name}: includes {target}; {folder} may include {', '.join(allowed)}")
    for room in ROOMS:
        files = [it for it in (root / "engine" / room).glob("*") if it.suffix in SUFFIXES]
        if len(files) > MOST_FILES:
            found.append(f"engine/{room}: {len(files)} files, wanted at most {MOST_FILES}: split it by a second noun")
    return found


def self_test():
    planted = [("graph/base/x.h", "graph/graph.h"), ("graph/x.cc", "parallel/lowering/lower.h"),
               ("parallel/planner/x.cc", "runtime/session.h"), ("parallel/x.cc", "graph/graph.h"),
               ("parallel/search/x.cc", "parallel/sharding/reshard.h"),
               ("parallel/sharding/x.cc", "parallel/strategy/strategy.h"),
               ("parallel/pipeline/x.cc", "parallel/lowering/lower.h"),
               ("parallel/strategy/x.cc", "parallel/lowering/lower.h"),
               ("parallel/lowering/x.cc", "parallel/strategy/strategy.h"),
               ("parallel/pricing/x.cc", "parallel/planner/planner.h"),
               ("parallel/composition/y.cc", "parallel/planner/explain.h"),
               ("serialize/x.cc", "parallel/lowering/lower.h"), ("text/x.cc", "serialize/model.h"),
               ("text/jinja/x.cc", "text/chat_template.h"), ("text/grammar/x.cc", "text/jinja/text.h"),
               ("text/tokenizer/x.cc", "text/grammar/grammar.h"), ("text/answer/x.cc", "text/jinja/text.h"),
               ("engine/x.cc", "graph/graph.h"), ("engine/base/y.cc", "capi/guard.h"),
               *((f"engine/{room}/x.cc", f"engine/{after}/x.h") for room, after in zip(ROOMS, ROOMS[1:])),
               ("runtime/x.cc", "serialize/model.h"), ("runtime/x2.cc", "runtime/backends/cpu/pool.h"),
               ("runtime/x3.cc", "runtime/transports/mpi/heartbeat.h"), ("runtime/transports/mpi/x.cc", "runtime/session.h"),
               ("runtime/backends/cpu/x.cc", "runtime/session.h"), ("runtime/backends/cpu/y.cc", "graph/graph.h"),
               ("capi/x_c.cc", "runtime/session.h"), ("samples/x.cc", "graph/graph.h"),
               ("cli/x.cc", "graph/graph.h"), ("cli/y.cc", "fmt/format.h"), ("cli/z.cc", "../engine/base/options.h")]
    with tempfile.TemporaryDirectory() as scratch:
        root = pathlib.Path(scratch)
        for path, include in planted:
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(f'#include "{include}"\n')
        (root / "capi" / "y.cc").write_text('std::snprintf(text, size, "%d of %.2f",\n              a, b);\n')
        missed = len(planted) + 1 - len(violations(root))
        if missed:
            sys.exit(f"layering self-test: {missed} of {len(planted) + 1} planted violations were not caught")


if __name__ == "__main__":
    self_test()
    root = pathlib.Path(sys.argv[1])
    bad = (violations(root) + op_names.self_test() + op_names.violations(root) + optimizer_names.self_test() +
           optimizer_names.violations(root) + service_imports.self_test() + service_imports.violations(root))
    print("\n".join(bad) if bad else "layering: every include follows the table, no fraction the locale; "
          f"{len(op_names.places(root))} ops are asked for their names")
    sys.exit(1 if bad else 0)
