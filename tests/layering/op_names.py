"""Counts the places that ask an op for its name in place of a property (graph/op_columns.h).

Outside graph/ops at most MOST such comparisons are left. Each has its reason in a comment above it, which begins
"By name:". Names of ops passed to helpers, and lists of them, count as comparisons; nodes that are made do not."""
import pathlib
import re
import tempfile

MOST = 10
FOLDERS = ["graph", "parallel", "serialize", "runtime", "engine", "capi", "cli"]
# Kernel tables are rows by op, and models are made of ops by name.
EXEMPT = ("graph/ops/", "graph/models/", "runtime/backends/cpu/kernel", "runtime/backends/cuda/")
COMPARISON = re.compile(
    r'\bop(?:_of\([^()]*\))?(?:->|\.)name\s*[=!]='            # node.op->name == ..., code.op_of(sum).name != ...
    r'|\bop(?:->|\.)name\.(?:starts_with|ends_with|find|contains)\('
    r'|\bop\(\)\s*[=!]='                                       # spec.op() == ...
    r'|\bop\s*[=!]=\s*"'                                       # op == "matmul"
    r'|"op"\]\s*[=!]=|"op"\]\.get<std::string>\(\)\.find\(')   # of a report's line
MADE = re.compile(r'\b(?:add|add_node|emit|emit_update|launch_local|query_kernel|\w+_grid|set_scope|reader\.\w+)\([^()";]*'
                  r'(?:\?[^()";]*(?:"\w+"[^()";]*)?)?$|PriceGrid grid\{$|is_gradient \? (?:"\w+" : )?$|const char\* op : \{(?:"\w+", )*$')
# Names that are words of options, results and types too; a comparison with them is found by its operand alone.
WORDS = {"add", "sub", "mul", "div", "neg", "exp", "log", "cast", "clamp", "pad", "scale", "slice", "concat", "broadcast",
         "sample", "dropout", "embedding", "softmax", "relu", "gelu", "silu", "swiglu", "tanh", "sigmoid", "sqrt", "square",
         "transpose", "quantize", "cross_entropy", "loss_scaling", "pick"}


def names(root):
    """The ops of the registry: kLayerNorm is layer_norm."""
    rows = re.findall(r"&k([A-Z]\w*)", (root / "graph/ops/registry.cc").read_text())
    return {re.sub(r"(?<!^)([A-Z])", r"_\1", row).lower() for row in rows}


def places(root):
    """(file, line number, whether a reason stands above) of each comparison."""
    known = names(root) - WORDS
    found = []
    for folder in FOLDERS:
        for file in sorted((root / folder).rglob("*")):
            name = file.relative_to(root).as_posix()
            if file.suffix not in {".cc", ".h", ".cu", ".cuh"} or name.startswith(EXEMPT):
                continue
            lines = file.read_text(errors="replace").split("\n")
            code = "\n".join(re.sub(r"//.*", "", line) for line in lines)
            at = {match.start() for match in COMPARISON.finditer(code)}
            for match in re.finditer(r'"(\w+)"', code):
                if match[1] in known and not MADE.search(code[:match.start()]):
                    at.add(match.start())
            for row in sorted({code.count("\n", 0, start) for start in at}):
                above = lines[max(0, row - 3):row + 1]
                found.append((name, row + 1, any("By name: " in line for line in above)))
    return found


def violations(root):
    found = places(root)
    bad = [f"{name}:{row}: asks for an op's name; ask for a property of graph/op_columns.h, or say why above it "
           '("By name: ...")' for name, row, has_reason in found if not has_reason]
    if len(found) > MOST:
        where = ", ".join(f"{name}:{row}" for name, row, _ in found)
        bad.append(f"{len(found)} comparisons of op names outside graph/ops, at most {MOST} are allowed: {where}")
    return bad


def self_test():
    planted = ['if (node.op->name == "matmul") return;', 'return code.op_of(sum).name != "add";', 'if (op == "rope") return;',
               'const Node* node = made_by(x, "row_max");', 'if (spec.op() == "kv_write") return;',
               'if (node.op->name.starts_with("linear_")) return;', 'constexpr Row kRows[] = {{"attention_paged", 1}};']
    with tempfile.TemporaryDirectory() as scratch:
        root = pathlib.Path(scratch)
        for folder in ("graph/ops", "graph/transform"):
            (root / folder).mkdir(parents=True)
        registry = "".join(f"&k{name}, " for name in ("Matmul", "Add", "Rope", "RowMax", "KvWrite", "AttentionPaged"))
        (root / "graph/ops/registry.cc").write_text(registry + '\nif (op->name == "matmul") return;\n')
        file = root / "graph/transform/x.cc"
        for line in planted:
            file.write_text(line + "\n")
            if len(violations(root)) != 1:
                return [f"op names self-test: not caught: {line}"]
        file.write_text('graph.add("matmul", {x, w});\n// By name: a reason.\n' + planted[0] + "\n")
        if violations(root):
            return ["op names self-test: a reason, or a node that is made, was not accepted"]
        file.write_text(f"// By name: a reason.\n{planted[0]}\n" * (MOST + 1))
        if len(violations(root)) != 1:
            return [f"op names self-test: comparison {MOST + 1} was not caught"]
    return []
