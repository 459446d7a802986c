"""Decoding and prefill at batch 1, against what the device copies and multiplies at best."""
WANTED = {"bf16": {"1.5B": 0.75, "7B": 0.75}, "q8_0": {"7B": 0.65}, "q4_0": {"7B": 0.60}}
PREFILL = 0.60


class Decoding:
    def __init__(self, commands, build, model, table):
        self.commands, self.build, self.model, self.table = commands, build, model, table
        self.kernels = None
        for weights in WANTED:
            wanted = WANTED[weights].get(model.name)
            rows = [(f"{model.name}_{weights}", f"decode {model.name} {weights}, B=1",
                     f">= {100 * wanted:.0f} % of copy" if wanted else "printed")]
            if weights == "bf16":
                rows.append((f"{model.name}_prefill", f"prefill {model.name} bf16, {model.prompt} tokens",
                             f">= {100 * PREFILL:.0f} % of product"))
            table.expect(self.section(weights), rows)

    def section(self, weights):
        return f"decode {self.model.name} {weights}"

    def measure(self, weights, rates, ceilings):
        model, table = self.model, self.table
        command = [f"{self.build}/cli/tessera", "bench", model.description(), "--mode", "decode", "--devices", "cuda",
                   "--precision", "bf16", "--weights", weights, "--seq", model.prompt, "--tokens", model.tokens, "--steps", 3, "--json",
                   *ceilings]
        if model.name == "1.5B":  # where launches count
            command.append("--kernels")
        result = self.commands.json(command, f"decode_{model.name}_{weights}", model.limit)
        rate, bytes_per_s = result["decode_tokens_per_second"], result["decode_bytes_per_second"]
        text = f"{rate:.1f} tokens/s, {result['bytes_per_token'] / 1e9:.3f} GB a token"
        share = bytes_per_s / rates.copy_bytes_per_s if rates.copy_bytes_per_s else None
        if share is not None:
            text = f"{100 * share:.1f} %: {text}, copy {rates.copy_bytes_per_s / 1e9:.0f} GB/s"
        kernels = result.get("kernels")
        if kernels:
            launch_s = kernels["launches"] * (rates.launch_s or 0)
            text += f"; {1e6 / rate:.0f} us a token, {kernels['launches']} launches = {1e6 * launch_s:.0f} us empty"
            if weights == "bf16":
                self.kernels = kernels
        wanted = WANTED[weights].get(model.name)
        if share is None and wanted:
            table.miss(f"{model.name}_{weights}", "no copy rate; " + text)
        else:
            table.set(f"{model.name}_{weights}", text, not wanted or share >= wanted)
        if weights != "bf16":
            return
        flops = result["prefill_flops_per_second"]
        text = f"{result['prefill_tokens_per_second']:.0f} tokens/s, {flops / 1e12:.1f} TFLOP/s"
        if rates.product_flops_per_s:
            table.ratio(f"{model.name}_prefill", flops / rates.product_flops_per_s, PREFILL,
                        f"{100 * flops / rates.product_flops_per_s:.1f} %: {text} of {rates.product_flops_per_s / 1e12:.0f}")
        else:
            table.miss(f"{model.name}_prefill", "no product rate; " + text)
