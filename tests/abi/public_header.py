"""The functions that tessera.h declares, for checks and for what is generated from it."""
import re

# (result, name, arguments)
FUNCTION = re.compile(r"^TSR_API\s+((?:const\s+)?\w+\s*\**)\s*\b(tsr_\w+)\(([^;]*)\);", re.M)


def functions(text):
    """(result, name, arguments) of each, in order."""
    found = FUNCTION.findall(re.sub(r"/\*.*?\*/", "", text, flags=re.S))
    assert len(found) > 150, f"{len(found)} functions found in the header: the expression no longer fits it"
    return found
