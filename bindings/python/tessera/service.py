"""The script tessera-serve of a wheel: executes the program that lies next to this module."""
import os
import sys


def main():
    program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "tessera-serve")
    try:
        os.execv(program, ["tessera-serve", *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"tessera-serve: {program}: {error.strerror}")
