"""What packages of service/ import: each its own row's, so that dialects stay pure functions and cgo stays in few rooms.

Tests may import anything. `tessera` stands for the library's module, `sqlite` for the database's driver; both are cgo. `protobuf` is the
reader of its wire."""
import pathlib
import re
import tempfile

# folder of service/ -> folders that it may import, with all below them (the longest folder counts; "" is the program)
ALLOWED = {
    "": ["dialect", "inference", "jobs", "keys", "metrics", "models", "page", "server", "store", "tinker", "tuning", "tessera"],
    "inference": [],
    "metrics": [],
    "tuning": ["inference"],
    "tree": [],
    "dialect": ["dialect", "inference", "tuning"],
    "dialect/tinker": ["dialect", "inference", "tinker", "protobuf"],
    "page": [],
    "store": ["store", "inference", "tinker", "tree", "tuning", "sqlite"],
    "keys": ["store"],
    "models": ["inference", "metrics", "tuning", "tessera", "cgo"],
    "jobs": ["inference", "jobs", "store", "tuning"],
    "jobs/training": ["jobs", "tuning", "tessera"],
    "tinker": ["inference", "tinker", "tree", "tuning"],
    "tinker/training": ["inference", "tinker", "tuning", "tessera"],
    "server": ["dialect", "inference", "keys", "metrics"],
}
MODULE = "tessera.dev/service"
IMPORT = re.compile(r'^(?:import )?\s*(?:[\w.]+ )?"([^"\n]+)"', re.M)
OTHERS = {"tessera.dev/tessera": "tessera", "google.golang.org/protobuf/encoding/protowire": "protobuf", "github.com/mattn/go-sqlite3": "sqlite", "C": "cgo"}


def under(path, folder):
    return path == folder or path.startswith(folder + "/")


def imports(text):
    """Paths between the package clause and the first declaration."""
    head = re.split(r"^(?:func|type|var|const) ", text, maxsplit=1, flags=re.M)[0]
    return IMPORT.findall(head)


def wanted(path):
    """The name in ALLOWED of an import; None for the standard library."""
    if under(path, MODULE):
        return path[len(MODULE) + 1:]
    if path in OTHERS:
        return OTHERS[path]
    return path if "." in path.split("/")[0] else None


def violations(root):
    found = []
    for file in sorted((root / "service").rglob("*.go")):
        if file.name.endswith("_test.go"):
            continue
        folder = file.parent.relative_to(root / "service").as_posix().removeprefix(".")
        row = max((each for each in ALLOWED if each and under(folder, each)), key=len, default="" if not folder else None)
        if row is None:
            found.append(f"service/{folder}: has no row in tests/layering/service_imports.py")
            continue
        for path in imports(file.read_text()):
            name = wanted(path)
            if name is not None and not any(under(name, each) for each in ALLOWED[row]):
                found.append(f"{file.relative_to(root)}: imports {path}; service/{row} may import {', '.join(ALLOWED[row]) or 'the standard library alone'}")
    return found


def self_test():
    planted = [("dialect/chat", "tessera.dev/service/models"), ("dialect/chat", "tessera.dev/tessera"), ("dialect/files", "tessera.dev/service/store"),
               ("server", "tessera.dev/service/models"), ("metrics", "tessera.dev/service/inference"), ("page", "github.com/x/y"),
               ("inference", "C"), ("strange", "fmt")]
    for folder, path in planted:
        with tempfile.TemporaryDirectory() as scratch:
            place = pathlib.Path(scratch) / "service" / folder
            place.mkdir(parents=True)
            (place / "x_test.go").write_text('package x\n\nimport "tessera.dev/tessera"\n')
            (place / "x.go").write_text(f'package x\n\nimport (\n\t"fmt"\n\n\t"{path}"\n)\n\nvar x = "tessera.dev/tessera"\n')
            if len(violations(pathlib.Path(scratch))) != 1:
                return [f"service imports self-test: not caught: {folder} imports {path}"]
    return []
