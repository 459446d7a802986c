#!/usr/bin/env python3
"""Shows how a model would be trained on some devices, before anything large is allocated: the plan, the seconds of a step,
the bytes of each device, and what else was considered; the twin of samples/c/plan.c.

    plan.py MODEL DEVICES [BATCH]        e.g.  plan.py small.tsr cpu:4 8
"""
import sys

import tessera


def main(argv: list[str]) -> int:
    if len(argv) < 3:
        print(f"usage: {argv[0]} MODEL DEVICES [BATCH]", file=sys.stderr)
        return 2
    try:
        info = tessera.Plan(tessera.load(argv[1]), devices=argv[2], batch=int(argv[3]) if len(argv) > 3 else 8).info()
    except tessera.TesseraError as error:
        print(f"{error.code_name}: {error}", file=sys.stderr)
        return 1
    print("strategy", info["strategy"])
    print("mesh", info["mesh"] or "none")
    print(f"step {info['predicted_step_seconds']:.6f} s")
    for device in info["devices"]:
        print(f"device {device['name']} {device['arena_bytes']['predicted']} bytes")
    for candidate in info["candidates"]:
        if candidate["rejected"]:
            print(f"candidate {candidate['strategy']} rejected: {candidate['rejected']}")
        else:
            print(f"candidate {candidate['strategy']} {candidate['step_seconds']:.6f} s {candidate['arena_bytes']} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
