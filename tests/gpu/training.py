"""Training steps against PyTorch's, alternating: one PyTorch process a model, which compiles once and waits; a new one of ours each round."""
import json
import os
import select
import statistics
import sys
import time

from run import Failed, PeakMemory, end

# tokens per second, model flops utilisation, memory
ASKED_SPEED, ASKED_MEMORY, ASKED_PREDICTED = 1.15, 0.8, 0.02
ROUNDS = 2


class Peer:
    """PyTorch with a compiled model, waiting for commands."""

    def __init__(self, commands, model, small, python, library_path):
        self.commands, self.name = commands, "torch_" + model.family
        here = os.path.dirname(os.path.abspath(__file__))
        device = ["--device", "cpu"] if small else ["--device", "cuda", "--compile"]
        self.said = open(os.path.join(commands.log_folder, self.name + ".json"), "w")
        self.process = commands.start(
            [python, os.path.join(here, "..", "bench", "torch_train.py"), model.description(), "--batch", model.batch, "--seq", model.seq,
             "--steps", model.steps // 2 + 1, "--precision", "bf16", "--serve", "--lock", os.path.join(commands.log_folder, "torch.lock"),
             *device], self.name, {"LD_LIBRARY_PATH": library_path}, pipes=True)

    def answer(self, limit):
        """The next JSON object that it prints."""
        end_time, text = time.monotonic() + limit, ""
        descriptor = self.process.stdout.fileno()
        while not text.endswith("\n"):
            left = end_time - time.monotonic()
            if left <= 0 or not select.select([descriptor], [], [], left)[0]:
                raise Failed(f"PyTorch was not done after {limit:.0f} s")
            piece = os.read(descriptor, 65536).decode()
            if not piece:
                raise Failed(f"PyTorch ended: {self.commands.tail(self.name)}")
            text += piece
        self.said.write(text)
        self.said.flush()
        return json.loads(text.strip().splitlines()[-1])

    def round(self, limit):
        self.process.stdin.write("go\n")
        self.process.stdin.flush()
        return self.answer(limit)

    def close(self):
        end(self.process)
        self.said.close()


class Training:
    def __init__(self, commands, build, model, table):
        self.commands, self.build, self.model, self.table = commands, build, model, table
        self.section = "train " + model.family
        self.kernels = None
        key = model.family
        size = f"{model.family} B={model.batch} T={model.seq}"
        table.expect(self.section, [
            (key + "_speed", f"{size} bf16, tokens/s", f">= {ASKED_SPEED} x PyTorch"),
            (key + "_mfu", f"{size} model flops utilisation", f">= {100 * model.mfu:.0f} %"),
            (key + "_memory", f"{size} peak memory", f"<= {ASKED_MEMORY} x PyTorch"),
            (key + "_predicted", f"{size} device memory, predicted", "within 2 %")])

    def memory_limit(self, result, theirs):
        """Bytes of arena with which our process would keep to the memory that is asked; None where it does anyway."""
        reserved = max((r.get("reserved_bytes", 0) for r in theirs), default=0)
        arena = result["devices"][0]["arena_bytes"]["predicted"]
        over = (result["used_bytes"] or arena) - int(ASKED_MEMORY * reserved)
        return arena - over if reserved and 0 < over < arena else None

    def ours(self, index, limit, ceilings, memory_limit=None):
        model = self.model
        command = [f"{self.build}/cli/tessera", "bench", model.description(), "--devices", "cuda", "--batch", model.batch,
                   "--seq", model.seq, "--precision", "bf16", "--steps", model.steps, "--json", *ceilings]
        if index == 0:
            command.append("--kernels")
        if memory_limit is not None:
            command += ["--memory-limit", memory_limit]
        with PeakMemory() as memory:
            result = self.commands.json(command, f"{model.family}_{index}", limit)
        result["used_bytes"] = memory.bytes
        return result

    def measure(self, peer, why_no_peer, limit, ceilings):
        """`peer` None: PyTorch is not there, `why_no_peer` says why; what needs none of it is measured all the same."""
        begin = time.monotonic()
        left = lambda: max(1, limit - (time.monotonic() - begin))
        ours, theirs, memory_limit, index = [], [], None, 0
        while len(ours) < ROUNDS:
            if peer is not None:
                try:
                    theirs.append(peer.round(left()))
                except Failed as failed:
                    peer, why_no_peer = None, failed
            ours.append(self.ours(index, left(), ceilings, memory_limit))
            index += 1
            self.fill(ours, theirs, why_no_peer)
            if memory_limit is None and index == 1:
                # Speed and memory are asked of one plan: where the fastest takes too much, of the fastest that does not.
                memory_limit = self.memory_limit(ours[0], theirs)
                if memory_limit is not None:
                    ours.clear()
        if peer is not None:
            try:
                theirs.append(peer.round(left()))
            except Failed:
                pass
            self.fill(ours, theirs, why_no_peer)

    def fill(self, ours, theirs, why_no_peer):
        key, table, model = self.model.family, self.table, self.model
        self.kernels = self.kernels or ours[0].get("kernels")
        tokens = model.batch * model.seq
        step_s = statistics.median([s for result in ours for s in result["seconds"]])
        flops_per_s = ours[0]["flops_per_token"] * tokens / step_s
        peak = ours[0].get("peak_flops_per_second")
        if not peak:
            table.miss(key + "_mfu", f"no peak is known of this device; {flops_per_s / 1e12:.3g} TFLOP/s")
        else:
            table.ratio(key + "_mfu", flops_per_s / peak, model.mfu,
                        f"{100 * flops_per_s / peak:.1f} %: {flops_per_s / 1e12:.0f} of {peak / 1e12:.0f} TFLOP/s, "
                        f"{ours[0]['flops_per_token'] / 1e9:.2f} GFLOP a token")
        device = ours[0]["devices"][0]
        arena = device["arena_bytes"]["predicted"]
        if "device_bytes" in device:
            predicted, measured = device["device_bytes"]["predicted"], device["device_bytes"]["measured"]
            table.set(key + "_predicted", f"{gib(predicted)} predicted, {gib(measured)} measured "
                      f"({100 * (measured / predicted - 1):+.2f} %), arena {gib(arena)}", abs(measured / predicted - 1) <= ASKED_PREDICTED)
        if not theirs:
            table.miss(key + "_speed", f"{tokens / step_s:.0f} alone, {1e3 * step_s:.1f} ms; no PyTorch: {why_no_peer}")
            table.miss(key + "_memory", f"{gib(ours[0]['used_bytes'] or arena)} (arena {gib(arena)}); no PyTorch")
            return
        peer_s = statistics.median([s for result in theirs for s in result["seconds"]])
        spread = max(r["step_seconds"] for r in theirs) / min(r["step_seconds"] for r in theirs)
        own_spread = max(r["step_seconds"] for r in ours) / min(r["step_seconds"] for r in ours)
        table.ratio(key + "_speed", peer_s / step_s, ASKED_SPEED,
                    f"{peer_s / step_s:.3f} x: {tokens / step_s:.0f} ({1e3 * step_s:.1f} ms) against {tokens / peer_s:.0f} "
                    f"({1e3 * peer_s:.1f} ms, {theirs[0]['version']}); rounds within {100 * (own_spread - 1):.1f} and {100 * (spread - 1):.1f} %")
        if "reserved_bytes" not in theirs[0]:
            return table.miss(key + "_memory", "PyTorch ran on no GPU")
        reserved = max(r["reserved_bytes"] for r in theirs)
        allocated = max(r["allocated_bytes"] for r in theirs)
        used = max([r["used_bytes"] or 0 for r in ours]) or arena
        table.set(key + "_memory", f"{used / reserved:.3f} x: {gib(used)} all told (arena {gib(arena)}) against {gib(reserved)} reserved, "
                  f"{gib(allocated)} allocated", used <= ASKED_MEMORY * reserved)


def gib(number):
    return f"{number / 2**30:.2f} GiB" if number >= 2**30 else f"{number / 2**20:.2f} MiB"


def python_with_torch():
    return os.environ.get("TSR_TORCH_PYTHON", sys.executable)
