#!/usr/bin/env python3
"""What `./dev gpu` concludes from figures, told made-up ones: no device and no build."""
import os
import stat
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from decoding import Decoding  # noqa: E402: next to this file
from kernels import Kernels, Rates, kernel_table  # noqa: E402
from run import Commands, Failed  # noqa: E402
from sizes import FULL  # noqa: E402
from suites import Suites  # noqa: E402
from table import Table  # noqa: E402
from training import Training  # noqa: E402


def check(holds, what):
    if not holds:
        sys.exit(f"self_test: {what}")


def script(path, text):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as out:
        out.write("#!/bin/sh\n" + text)
    os.chmod(path, os.stat(path).st_mode | stat.S_IXUSR)


def verdict(table, key):
    return table.rows[key][3]


def what_is_not_measured_is_no_pass():
    table = Table()
    table.expect("one", [("a", "a", "1"), ("b", "b", "1"), ("c", "c", "1")])
    table.expect("two", [("d", "d", "1")])
    table.ratio("a", 1.0, 1.0, "1.0")
    table.ratio("b", 0.99, 1.0, "0.99")
    table.give_up("one", "the reason")
    text = table.text()
    check(table.counts() == (1, 1, 2), f"counts {table.counts()}")
    check(verdict(table, "a") == "pass" and verdict(table, "b") == "SHORT", "what was measured stays")
    check("not measured: the reason" in text and "not measured: not reached" in text, text)


def a_limit_ends_a_command_and_its_children(folder):
    commands = Commands(folder, dict(os.environ))
    begin = time.monotonic()
    try:
        commands.run(["sh", "-c", f"(sleep 3; touch {folder}/late) & echo begun; wait"], "slow", 1)
        check(False, "a command outlived its limit")
    except Failed as failed:
        check("stopped after 1 s" in str(failed) and "begun" in str(failed), str(failed))
    check(time.monotonic() - begin < 2.5, "the limit took longer than it is")
    time.sleep(3.5)
    check(not os.path.exists(f"{folder}/late"), "a child outlived the limit")


def kernels_are_held_against_the_copy_that_was_measured(folder):
    lines = ["copy 700.0 us 3000.0 GB/s 100.0 %", "empty launch 2.10 us 0.0 GB/s 0.0 %",
             "matmul (cublaslt) bf16[8192, 8192] 1400.0 us 780.0 TFLOP/s 100.0 %", "gelu (own) bf16[4] 10.0 us 2700.0 GB/s 90.0 %",
             "sample (own) bf16[1, 4] 10.0 us 1.0 GB/s 0.1 %"]
    script(f"{folder}/tests/backend_bench", "\n".join(f"echo '{line}'" for line in lines) + "\n")
    table = Table()
    kernels = Kernels(Commands(folder, dict(os.environ)), folder, False, table)
    kernels.measure(10)
    check(verdict(table, "by_memory") == "pass" and verdict(table, "ceilings") == "pass", str(table.rows))
    check(kernels.rates.options() == ["--copy-gbs", "3000", "--product-tflops", "780"], str(kernels.rates.options()))
    script(f"{folder}/tests/backend_bench",
           "\n".join(f"echo '{line}'" for line in lines) + "\necho 'rope (own) bf16[4] 10.0 us 2400.0 GB/s 80.0 %'\n")
    kernels.measure(10)
    check(verdict(table, "by_memory") == "SHORT" and "rope" in table.rows["by_memory"][2], str(table.rows))


def training_passes_at_what_is_asked_and_no_less():
    table = Table()
    training = Training(None, "", FULL.gpt2, table)
    step_s, gib = 0.05, 1 << 30
    ours = {"seconds": [step_s], "step_seconds": step_s, "flops_per_token": 1e9, "peak_flops_per_second": 989e12, "used_bytes": 12 * gib,
            "devices": [{"arena_bytes": {"predicted": 11 * gib, "measured": -1},
                         "device_bytes": {"predicted": 100 * gib, "measured": 101 * gib}}]}
    peer = {"seconds": [1.15 * step_s], "step_seconds": 1.15 * step_s, "version": "2", "reserved_bytes": 15 * gib,
            "allocated_bytes": 14 * gib}
    training.fill([ours], [peer], None)
    check([verdict(table, "gpt2_" + row) for row in ("speed", "mfu", "memory", "predicted")] == ["pass"] * 4, str(table.rows))
    peer.update(seconds=[1.14 * step_s], reserved_bytes=14 * gib)
    ours.update(flops_per_token=0.7e9)
    ours["devices"][0]["device_bytes"]["measured"] = 103 * gib
    training.fill([ours], [peer], None)
    check([verdict(table, "gpt2_" + row) for row in ("speed", "mfu", "memory", "predicted")] == ["SHORT"] * 4, str(table.rows))
    check(training.memory_limit(ours, [peer]) == 11 * gib - (12 * gib - int(0.8 * 14 * gib)), "the arena that is left")
    check(training.memory_limit(ours, [{"reserved_bytes": 15 * gib}]) is None, "no limit where none is needed")
    check(training.memory_limit(ours, []) is None, "no limit without a peer")
    training.fill([ours], [], "no PyTorch here")
    check([verdict(table, "gpt2_" + row) for row in ("speed", "memory")] == ["NOT"] * 2, str(table.rows))


def decoding_is_held_against_copy_and_product(folder):
    table, rates = Table(), Rates()
    rates.copy_bytes_per_s, rates.product_flops_per_s, rates.launch_s = 3e12, 800e12, 2e-6
    script(f"{folder}/cli/tessera",
           """echo '{"decode_tokens_per_second": 170, "decode_bytes_per_second": 2.3e12, "bytes_per_token": 1.35e10, """
           """"prefill_flops_per_second": 4.7e14, "prefill_tokens_per_second": 34000}'\n""")
    decoding = Decoding(Commands(folder, dict(os.environ)), folder, FULL.decoded[1], table)
    for weights in ("bf16", "q8_0", "q4_0"):
        decoding.measure(weights, rates, [])
    check([verdict(table, "7B_" + row) for row in ("bf16", "prefill", "q8_0", "q4_0")] == ["pass", "SHORT", "pass", "pass"], str(table.rows))
    rates.copy_bytes_per_s = None
    decoding.measure("q8_0", rates, [])
    check(verdict(table, "7B_q8_0") == "NOT", str(table.rows))


def a_suite_that_checks_too_little_or_fails_is_no_pass(folder):
    table = Table()
    suites = Suites(Commands(folder, dict(os.environ)), folder, FULL, table)
    suite = ("ops", "", "test_ops", [], {}, 10)
    for text, wanted in [("echo 'assertions: 12 | 12 passed'", "pass"), ("echo 'assertions: 9 | 9 passed'", "SHORT"),
                         ("echo 'assertions: 12 | 11 passed'; printf 'TEST CASE:  a_name\\n\\na.cc:1: ERROR: CHECK( x )\\n'; exit 1", "SHORT"),
                         ("sleep 5", "NOT")]:
        script(f"{folder}/tests/test_ops", text + "\n")
        suites.suite(suite, 1)
        check(verdict(table, "ops") == wanted, f"{text}: {table.rows['ops']}")
        if "a_name" in text:
            check("a_name ERROR: CHECK( x )" in table.rows["ops"][2], str(table.rows["ops"]))


def a_broken_op_does_not_hide_the_others(folder):
    table = Table()
    suites = Suites(Commands(folder, dict(os.environ)), folder, FULL, table)
    # By themselves one breaks, and one has no such types.
    script(f"{folder}/tests/test_ops", """case "$TESSERA_TEST_OP" in
  "" | rope) echo 'assertions: 1 | 0 passed | 1 failed |'; exit 1 ;;
  add) echo '0 cases in f16 and bf16 compared'; echo 'assertions: 1 | 0 passed | 1 failed |'; exit 1 ;;
esac
echo 'assertions: 1 | 1 passed | 0 failed |'
""")
    suites.suite(("halves", "", "test_ops", [], {}, 1), 60)
    text = table.rows["halves"][2]
    check(verdict(table, "halves") == "SHORT" and "1 ops fail by themselves (rope): exit status 1" in text, text)


def text_that_overlap_changes_falls_short(folder):
    table = Table()
    suites = Suites(Commands(folder, dict(os.environ)), folder, FULL, table)
    for tokens, wanted in [("1, 2", "pass"), ("1, $TESSERA_CUDA_OVERLAP", "SHORT")]:
        script(f"{folder}/cli/tessera", f"""echo '{{"tokens": [TOKENS]}}' | sed "s/TOKENS/{tokens}/"\n""")
        suites.overlap("model")
        check(verdict(table, "overlap") == wanted, str(table.rows["overlap"]))


def a_table_of_kernels_adds_up():
    kernel = {"op": "gelu", "variant": "own", "operands": "bf16[4]", "count": 2, "seconds": 2e-5, "floor_seconds": 1e-5}
    text = kernel_table("step", {"seconds": 6e-5, "launches": 6, "floor_seconds": 3e-5, "kernels": [kernel] * 3}, 1)
    check("       4       40       20   50% 66.7%  others" in text, text)


with tempfile.TemporaryDirectory() as scratch:
    what_is_not_measured_is_no_pass()
    a_limit_ends_a_command_and_its_children(scratch)
    kernels_are_held_against_the_copy_that_was_measured(scratch)
    training_passes_at_what_is_asked_and_no_less()
    decoding_is_held_against_copy_and_product(scratch)
    a_suite_that_checks_too_little_or_fails_is_no_pass(scratch)
    a_broken_op_does_not_hide_the_others(scratch)
    text_that_overlap_changes_falls_short(scratch)
    a_table_of_kernels_adds_up()
print("self_test: what the table says of figures holds")
