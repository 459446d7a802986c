#!/usr/bin/env python3
"""What a section of `./dev test` ran: counts of cases in what it printed, and why some did not run.

    cases.py LOG...                     one line `passed failed skipped`; then, for each reason, `reason<TAB>cases`
    cases.py --failures LOG...          the failed assertions of doctest programs, each with its case
    cases.py --self-test

Cases are: each of a doctest program (its closing line); each program of ctest that is none; each row that begins with
`parity |`, `perturbed |`, `limits |` or `kills |`; each line that begins with `ok`. Of a line `skipped | case | reason`
the case is skipped: doctest counts it as passed, in its closing line behind it.
"""
import collections
import re
import sys

DOCTEST = re.compile(r"\[doctest\] test cases:\s*\d+ \|\s*(\d+) passed \|\s*(\d+) failed")
CTEST_BEGIN = re.compile(r"\d+/\d+ Testing: (\S+)")
CTEST_END = re.compile(r"Test (Passed|Failed)\.")
ROW = re.compile(r"parity \| (?!form )|perturbed \| |limits \| |kills \| |ok\b")
ASSERTION = re.compile(r":\d+: (FATAL )?ERROR: ")
SKIPPED = re.compile(r"skipped \| (.*?) \| (.*)")


def count(lines):
    """(passed, failed, {(case, reason)})"""
    passed = failed = 0
    skipped, of_program = set(), set()
    by_ctest, is_doctest = "", False
    for line in lines:
        line = line.rstrip("\n")
        if match := CTEST_BEGIN.match(line):
            by_ctest, is_doctest = match[1], False
        elif match := DOCTEST.match(line):
            passed, failed, is_doctest = passed + int(match[1]) - len(of_program), failed + int(match[2]), True
            of_program.clear()
        elif (match := CTEST_END.match(line)) and by_ctest:
            if not is_doctest:
                passed, failed = passed + (match[1] == "Passed"), failed + (match[1] == "Failed")
            by_ctest = ""
        elif ROW.match(line):
            passed += 1
        elif match := SKIPPED.match(line):
            skipped.add((match[1], match[2]))
            of_program.add(match[1])
    return passed, failed, skipped


def text(lines):
    passed, failed, skipped = count(lines)
    cases = {case for case, _ in skipped}
    told = collections.Counter(reason for _, reason in skipped)
    head = f"{passed} {failed} {len(cases)}"
    return "\n".join([head] + [f"{reason}\t{number}" for reason, number in sorted(told.items())])


def failures(lines):
    """The lines of failed assertions of doctest, each after the name of its case; at most 100 lines."""
    case, inside, found = "", False, []
    for line in lines:
        line = line.rstrip("\n")
        if line.startswith("TEST CASE:"):
            case = line
        elif ASSERTION.search(line):
            found += [case, line]
            inside = True
        elif inside and line.strip():
            found.append(line)
        else:
            inside = False
    return found[:100]


def self_test():
    log = """1/3 Testing: graph
skipped | a case | no data
skipped | a case | no data
[doctest] test cases:  15 |  14 passed | 1 failed | 3 skipped
Test Failed.
2/3 Testing: layering
Test Passed.
3/3 Testing: broken
Test Failed.
parity | llama | dp=2 | equal
ok: the transcript
parity | form | devices
a line | with a bar
skipped | another | no | data
"""
    found = text(log.splitlines(True))
    wanted = "16 2 2\nno data\t1\nno | data\t1"
    assert found == wanted, f"{found!r}, wanted {wanted!r}"
    assert text([]) == "0 0 0"
    doctest = """TEST CASE:  a case

a.cc:3: MESSAGE: nothing

a.cc:5: ERROR: CHECK( 1 == 2 ) is NOT correct!
  values: CHECK( 1 == 2 )

a line
"""
    found = failures(doctest.splitlines(True))
    wanted = doctest.splitlines()[:1] + doctest.splitlines()[4:6]
    assert found == wanted, f"{found!r}, wanted {wanted!r}"
    print("cases.py: as it should be")


if __name__ == "__main__":
    if sys.argv[1:] == ["--self-test"]:
        self_test()
    elif sys.argv[1:2] == ["--failures"]:
        for line in failures([line for name in sys.argv[2:] for line in open(name, errors="replace")]):
            print(line)
    else:
        print(text([line for name in sys.argv[1:] for line in open(name, errors="replace")]))
