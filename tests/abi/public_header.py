"""The functions that tessera.h declares, for checks and for what is generated from it."""
import re

# (result, name, arguments)
FUNCTION = re.compile(r"^TSR_API\s+((?:const\s+)?\w+\s*\**)\s*\b(tsr_\w+)\(([^;]*)\);", re.M)


TIER = re.compile(r"^#ifdef TSR_UNSTABLE_API\n.*?^#endif[^\n]*\n", re.M | re.S)


def stable(text):
    """The header as a program sees it that does not define TSR_UNSTABLE_API."""
    found = TIER.sub("", text)
    assert found != text, "the header has no unstable tier: the expression no longer fits it"
    return found


def functions(text):
    """(result, name, arguments) of each, in order."""
    found = FUNCTION.findall(re.sub(r"/\*.*?\*/", "", text, flags=re.S))
    assert len(found) > 150, f"{len(found)} functions found in the header: the expression no longer fits it"
    return found
