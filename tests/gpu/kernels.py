"""Single kernels against copy and product rates (backend_bench), and times by kernel of whole steps as text."""
import re

from run import Failed

LINE = re.compile(r"^(.+?)\s+([\d.]+) us\s+([\d.]+) (GB/s|TFLOP/s)\s+([\d.]+) %$")
ASKED = 0.85
# What no copy bounds: a launch, one row of logits, and caches of some MiB.
NOT_BY_MEMORY = ("copy", "empty launch", "sample", "attention_paged")


class Rates:
    """What the device does at best, as backend_bench measured it; None before."""

    copy_bytes_per_s = product_flops_per_s = launch_s = None

    def options(self):
        """For `tessera bench`."""
        options = []
        if self.copy_bytes_per_s:
            options += ["--copy-gbs", f"{self.copy_bytes_per_s / 1e9:.6g}"]
        if self.product_flops_per_s:
            options += ["--product-tflops", f"{max(self.product_flops_per_s / 1e12, 1e-6):.6g}"]
        return options


class Kernels:
    def __init__(self, commands, build, small, table):
        self.commands, self.build, self.small, self.table = commands, build, small, table
        self.rates, self.lines = Rates(), []
        table.expect("kernels", [("ceilings", "copy, bf16 product, empty launch", "printed"),
                                 ("by_memory", "own kernels bound by memory", f">= {100 * ASKED:.0f} % of copy")])

    def measure(self, limit):
        command = [f"{self.build}/tests/backend_bench", "cuda"] + (["--small"] if self.small else [])
        why = ""
        try:
            status, output = self.commands.run(command, "kernels", limit)
            if status != 0:
                why = f"; exit status {status}"
        except Failed as failed:  # what was timed before the limit counts
            output, why = self.commands.output("kernels"), f"; {failed}"[:40]
        self.lines = [match.groups() for match in map(LINE.match, output.splitlines()) if match]
        for what, microseconds, rate, unit, _ in self.lines:
            if what == "copy":
                self.rates.copy_bytes_per_s = float(rate) * 1e9 or None
            elif what == "empty launch":
                self.rates.launch_s = float(microseconds) * 1e-6
            elif unit == "TFLOP/s" and self.rates.product_flops_per_s is None:
                self.rates.product_flops_per_s = max(float(rate), 1e-3) * 1e12
        rates = self.rates
        if rates.copy_bytes_per_s and rates.product_flops_per_s and rates.launch_s:
            self.table.set("ceilings", f"{rates.copy_bytes_per_s / 1e9:.0f} GB/s, {rates.product_flops_per_s / 1e12:.0f} TFLOP/s, "
                           f"{rates.launch_s * 1e6:.2f} us", True)
        bound = [(float(share), what, us) for what, us, _, unit, share in self.lines
                 if unit == "GB/s" and not what.startswith(NOT_BY_MEMORY)]
        if not bound:
            raise Failed("no kernel was timed" + why)
        reached = sum(share >= 100 * ASKED for share, _, _ in bound)
        worst = min(bound)
        self.table.set("by_memory", f"{reached} of {len(bound)} do; the least {worst[1]} {worst[0]:.0f} %{why}",
                       reached == len(bound) and not why)

    def text(self):
        """Several to a line: share of the copy's rate, or of the product's. Of f32 those that a copy bounds and that fall short."""
        short = []
        for what, us, _, unit, share in self.lines:
            slow = unit == "GB/s" and float(share) < 100 * ASKED and not what.startswith(NOT_BY_MEMORY)
            if what in ("copy", "empty launch") or (" f32[" in what and "adamw" not in what and not slow):
                continue
            text = f"{re.sub(r' *[(].*?[)]', '', what)} {float(us):.0f}us {float(share):.0f}%".replace(", ", "x")
            if text not in short:
                short.append(text)
        lines, line = [], ""
        for item in short:
            if len(line) + len(item) > 150:
                lines.append(line)
                line = ""
            line += item + "; "
        return "\n".join(lines + [line])


def kernel_table(title, times, rows):
    """Of `tessera bench --kernels --json`."""
    lines = [f"{title}: {1e3 * times['seconds']:.3f} ms in {times['launches']} launches, floor {1e3 * times['floor_seconds']:.3f} ms",
             "   count       us    floor reach share"]
    total = times["seconds"] or 1
    rest = [0, 0.0, 0.0]

    def add(count, seconds, floor, what):
        lines.append(f"{count:8d} {1e6 * seconds:8.0f} {1e6 * floor:8.0f} {100 * floor / seconds if seconds else 0:4.0f}% "
                     f"{100 * seconds / total:4.1f}%  {what}")

    for index, kernel in enumerate(times["kernels"]):
        if index < rows:
            variant = f" ({kernel['variant']})" if kernel["variant"] else ""
            add(kernel["count"], kernel["seconds"], kernel["floor_seconds"], f"{kernel['op']}{variant} {kernel['operands']}"[:52])
        else:
            for at, key in enumerate(("count", "seconds", "floor_seconds")):
                rest[at] += kernel[key]
    if rest[0]:
        add(*rest, "others")
    return "\n".join(lines)
