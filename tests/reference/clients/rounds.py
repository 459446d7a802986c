"""The checks of a client, a line each, and what the scripted model says."""
import pathlib
import sys
import traceback

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import scripted_model  # noqa: E402

ASK = "Say hello."
CALL = scripted_model.CALL_WORDS + "."
TEMPERATURE = scripted_model.RESULT + " degrees in Paris"  # what the tool returns
HELLO = "".join(scripted_model.HELLO)
SEEN = "".join(scripted_model.SEEN)
THOUGHT, GREETING = "A greeting is due.", "Greetings and thanks! "
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


def same(found, wanted):
    """Equal except for the white space around, which some clients strip."""
    assert isinstance(found, str) and found.strip() == wanted.strip(), f"found {found!r}, wanted {wanted!r}"


def run(client, checks):
    """Runs each check; one that returns a text says why it was skipped, or what it found."""
    failed = 0
    for check in checks:
        try:
            note = check()
            print(f"ok      {check.__name__:24} {note or ''}".rstrip(), flush=True)
        except Exception:
            failed += 1
            print(f"FAILED  {check.__name__}\n{traceback.format_exc()}", flush=True)
    print(f"{client}: {len(checks) - failed} passed, {failed} failed", flush=True)
    sys.exit(failed != 0)
