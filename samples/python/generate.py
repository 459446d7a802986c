#!/usr/bin/env python3
"""Continues a prompt, printing the text as it comes; the twin of samples/c/generate.c.

    generate.py MODEL PROMPT [TOKENS [DEVICES [TEMPERATURE]]]        e.g.  generate.py tuned.tsr "Once upon" 50 cpu:2 0.8
"""
import sys

import tessera


def main(argv: list[str]) -> int:
    if len(argv) < 3:
        print(f"usage: {argv[0]} MODEL PROMPT [TOKENS [DEVICES [TEMPERATURE]]]", file=sys.stderr)
        return 2
    try:
        model = tessera.load(argv[1])
        stream = model.generate(argv[2], max_tokens=int(argv[3]) if len(argv) > 3 else 100,
                                devices=argv[4] if len(argv) > 4 else "cpu:1",
                                temperature=float(argv[5]) if len(argv) > 5 else 0)
        print(argv[2], end="")
        for piece in stream:
            print(piece, end="", flush=True)
        print()
    except tessera.TesseraError as error:
        print(f"{error.code_name}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
