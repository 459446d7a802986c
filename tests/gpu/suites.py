"""What has to be right before anything is timed: test suites, sanitizers, learning and same bits. All at once, on a pool of threads:
nothing here is timed."""
import concurrent.futures
import filecmp
import glob
import os
import re
import shutil
import statistics

from run import Clock, Failed

# (key, what, test, arguments, environment, least checks that count as a run)
SUITES = [
    ("plugin", "plugin", "test_backends", [], {}, 10),
    ("ops", "ops against f64, f32 and f64", "test_ops", ["-tc=every_op_passes*"], {}, 1),
    ("halves", "ops in f16 and bf16", "test_ops", ["-tc=every_op_in_f16*"], {}, 1000),
    ("tf32", "products in TF32, and not", "test_ops", ["-tc=products_in_tf32*,what_tf32*,every_product_of_a_fused*"], {}, 1000),
    ("attention", "own attention, no cuDNN", "test_ops", ["-tc=every_op_in_f16*"],
     {"TESSERA_TEST_OP": "attention", "TESSERA_TEST_VARIANT": "mma"}, 100),
    ("attention_grad", "its gradient", "test_ops", ["-tc=every_op_in_f16*"],
     {"TESSERA_TEST_OP": "attention_grad", "TESSERA_TEST_VARIANT": "mma"}, 100),
    ("joined", "launches joined, fp8, experts, captures", "test_ops", ["-sf=*cuda_*"], {}, 5000),
    ("collectives", "collectives", "test_runtime", ["-sf=*communicator_test*"], {}, 100),
    ("parity_gpt2", "parity gpt2, 1 to 8 ranks", "test_conformance", ["-ts=parity gpt2"], {}, 10),
    ("parity_llama", "parity llama", "test_conformance", ["-ts=parity llama"], {}, 10),
    ("parity_variants", "parity variants", "test_conformance", ["-ts=parity variants"], {}, 10),
]
# Those in which one op's broken kernel takes the context with it, and so all ops after it.
BY_OP = ("ops", "halves")
CASES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "ops", "cases", "*.txt")
SANITIZED = ["layer_norm", "softmax", "embedding_grad", "attention", "attention_grad", "linear_cross_entropy_grad", "quantized_matmul",
             "adamw_update"]


class Suites:
    def __init__(self, commands, build, sizes, table):
        self.commands, self.build, self.sizes, self.table = commands, build, sizes, table
        table.expect("suites", [(key, what, "green") for key, what, *_ in SUITES])
        table.expect("learning", [
            ("bf16_loss", f"loss after {sizes.text_steps} steps, bf16 / f32", "within 1 %"),
            ("same_bits", "two runs, weights and losses", "same bits"),
            ("overlap", "text where launches overlap", "as where none do"),
            ("arena", "arena predicted = measured", "to the byte")])
        table.expect("sanitizers", [(tool, tool, "clean") for tool in ("memcheck", "racecheck")])

    def start(self, pool, limit):
        """Futures of everything, the longest first."""
        jobs = [(section, what) for section, what in
                [("learning", self.learning), ("sanitizers", self.memcheck), ("sanitizers", self.racecheck)]]
        suites = [("suites", lambda suite=suite: self.suite(suite, limit)) for suite in self.chosen()]
        return {pool.submit(job): section for section, job in
                suites + [(section, lambda job=job: job(limit)) for section, job in jobs]}

    def chosen(self):
        if not self.sizes.small:
            return SUITES
        # An emulator would take an hour for all.
        for key in ("parity_gpt2", "parity_llama"):
            self.table.miss(key, "left out at these sizes")
        one = "-tc=an adapter's gradients*"
        return [(key, what, test, [one] if key == "parity_variants" else arguments, {**environment, "TESSERA_TEST_OP": environment.get("TESSERA_TEST_OP", "softmax")}, 1)
                for key, what, test, arguments, environment, _ in SUITES if not key.startswith(("parity_gpt2", "parity_llama"))]

    def suite(self, suite, limit):
        key, _, test, arguments, environment, least = suite
        clock = Clock(limit)
        try:
            status, output = self.commands.run([f"{self.build}/tests/{test}", *arguments], key, limit * (0.8 if key in BY_OP else 1),
                                               environment)
        except Failed as failed:
            self.table.miss(key, f"{self.by_op(suite, clock) if key in BY_OP else ''}{failed}")
            return
        checks = int((re.findall(r"assertions:\s*(\d+)", output) or ["0"])[-1])
        rows = len(set(re.findall(r"^parity \| .*$", output, re.M)))
        cases = re.findall(r"^\d+ (?:ops checked on|cases in) .*$", output, re.M)
        text = f"{checks} checks" + (f", {rows} rows" if rows else "") + (f", {cases[-1][:40]}" if cases else "")
        if status != 0:
            first = re.search(r"TEST CASE:\s+(.*)\n(?:.*\n)*?.*?((?:FATAL )?ERROR: .*(?:\n.*)?)", output)
            what = " ".join(" ".join(first.groups()).split()) if first else self.commands.tail(key)
            text += f", {self.by_op(suite, clock) if key in BY_OP else ''}exit status {status}: {what[:150]}"
        self.table.set(key, text, status == 0 and checks >= least)

    def by_op(self, suite, clock):
        """Which ops fail, each in a process of its own, as far as there is time."""
        key, _, test, arguments, environment, _ = suite
        ops = sorted(os.path.splitext(os.path.basename(path))[0] for path in glob.glob(CASES))
        wanted = environment.get("TESSERA_TEST_OP")
        failing, untried = [], []

        def one(op):
            if clock.left() < 2:
                return untried.append(op)
            try:
                status, output = self.commands.run([f"{self.build}/tests/{test}", *arguments], f"{key}_{op}", min(20, clock.left()),
                                                   {**environment, "TESSERA_TEST_OP": op})
            except Failed:
                return failing.append(op + " (stopped)")
            # An op without such types compares nothing, which is all that is wrong.
            if status != 0 and not (re.search(r"^0 cases in", output, re.M) and re.search(r"\| *1 failed *\|", output)):
                failing.append(op)

        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            list(pool.map(one, [op for op in ops if wanted in (None, op)]))
        return (f"{len(failing)} ops fail by themselves ({', '.join(sorted(failing)[:12])}"
                f"{', ...' if len(failing) > 12 else ''}){f', {len(untried)} untried' if untried else ''}: ")

    def train(self, name, extra, limit):
        sizes = self.sizes
        model = os.path.join(self.commands.log_folder, "text.tsr")
        tessera = f"{self.build}/cli/tessera"
        return self.commands.json(
            [tessera, "train", model, "--data", os.path.join(self.commands.log_folder, "text.txt"), "--devices", "cuda",
             "--steps", sizes.text_steps, "--batch", sizes.text_batch, "--seq", sizes.text_seq, "--checkpoint-every", 0,
             "--eval-batches", 4, "--json", *extra], name, limit)

    def learning(self, limit):
        """A model of bytes reads the documentation: in f32, in bf16, and in bf16 again."""
        folder = self.commands.log_folder
        with open(os.path.join(folder, "text.txt"), "w") as text:
            for page in sorted(glob.glob("docs/**/*.md", recursive=True)) + ["capi/include/tessera/tessera.h"]:
                with open(page) as source:
                    text.write(source.read())
        status, _ = self.commands.run([f"{self.build}/cli/tessera", "new", self.sizes.text_model, "--tokenizer", "bytes",
                                       "--out", os.path.join(folder, "text.tsr")], "text_model", 60)
        if status != 0:
            raise Failed(self.commands.tail("text_model"))
        out = [os.path.join(folder, f"text-{i}.tsr") for i in (1, 2)]
        wide = self.train("text_f32", [], limit / 3)
        first = self.train("text_bf16", ["--precision", "bf16", "--out", out[0], "--overwrite"], limit / 3)
        last = lambda result: statistics.mean(result["losses"][-10:])
        ratio = last(first) / last(wide)
        self.table.set("bf16_loss", f"{last(first):.4f} / {last(wide):.4f} = {ratio:.4f}; held out "
                       f"{first['eval_loss']:.4f} / {wide['eval_loss']:.4f} (from {wide['losses'][0]:.2f})", abs(ratio - 1) <= 0.01)
        arena = first["devices"][0]["arena_bytes"]
        self.table.set("arena", f"{arena['predicted']} and {arena['measured']} bytes", arena["predicted"] == arena["measured"])
        self.overlap(out[0])
        second = self.train("text_bf16_again", ["--precision", "bf16", "--out", out[1], "--overwrite"], limit / 3)
        same = filecmp.cmp(out[0], out[1], shallow=False)
        self.table.set("same_bits", f"weights {'equal' if same else 'DIFFER'}, losses "
                       f"{'equal' if first['losses'] == second['losses'] else 'DIFFER'} over {len(first['losses'])} steps",
                       same and first["losses"] == second["losses"])

    def overlap(self, model):
        """Sampled, so that one wrong number soon changes all that follows."""
        def tokens(index):
            command = [f"{self.build}/cli/tessera", "generate", model, "--prompt", "A kernel ", "--tokens", self.sizes.text_seq // 2,
                       "--seed", 1, "--precision", "bf16", "--devices", "cuda", "--json"]
            return self.commands.json(command, f"text_overlap_{index}", 30, {"TESSERA_CUDA_OVERLAP": "1" if index else "0"})["tokens"]
        try:
            apart, *overlapping = [tokens(index) for index in range(4)]
        except Failed as failed:
            return self.table.miss("overlap", failed)
        same = sum(each == apart for each in overlapping)
        self.table.set("overlap", f"{same} of {len(overlapping)} times, {len(apart)} tokens", same == len(overlapping) and len(apart) > 0)

    def memcheck(self, limit):
        self.sanitize("memcheck", r"ERROR SUMMARY: (\d+) error", limit)

    def racecheck(self, limit):
        self.sanitize("racecheck", r"RACECHECK SUMMARY: (\d+) hazard", limit)

    def sanitize(self, tool, summary, limit):
        sanitizer = next(filter(None, [shutil.which("compute-sanitizer"), *sorted(glob.glob("/usr/local/cuda*/bin/compute-sanitizer"))]), None)
        if sanitizer is None:
            raise Failed("compute-sanitizer is not installed")
        clean, found, unfinished = [], [], []

        def one(op):
            # The own kernels, also where cuDNN is installed.
            environment = {"TESSERA_TEST_OP": op, "TESSERA_TEST_VARIANT": "mma" if op.startswith("attention") else ""}
            try:
                status, output = self.commands.run(
                    [sanitizer, "--tool", tool, "--error-exitcode", "99", f"{self.build}/tests/test_ops",
                     "-tc=every_op_in_f16*"], f"{tool}_{op}", limit / 2, {key: value for key, value in environment.items() if value})
            except Failed:
                return unfinished.append(op)
            errors = re.findall(summary, output)
            if not errors or re.search(r"Device not supported|assertions: *0 ", output):
                return unfinished.append(op)
            return (clean if status == 0 and errors[-1] == "0" else found).append(op)

        with concurrent.futures.ThreadPoolExecutor(4) as pool:  # two rounds
            list(pool.map(one, SANITIZED))
        text = f"{len(clean)} of {len(SANITIZED)} ops clean"
        text += f"; FOUND in {', '.join(found)}" if found else ""
        text += f"; did not run or end: {', '.join(unfinished)}" if unfinished else ""
        self.table.set(tool, text, len(clean) == len(SANITIZED))
