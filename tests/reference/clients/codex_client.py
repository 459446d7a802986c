#!/usr/bin/env python3
"""codex_client.py URL MODEL FOLDER: the real Codex, of the wheel openai-codex-cli-bin, against a service with the scripted model.

Its configuration is that of the service's guide, in FOLDER, with statistics and the look for updates off."""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import urllib.request

from codex_cli_bin import bundled_codex_path
from rounds import ASK, CALL, HELLO, SEEN, run, same

URL, MODEL, FOLDER = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3]).resolve()
CODEX = bundled_codex_path()
HOME, WORK = FOLDER / "home", FOLDER / "work"
CONFIGURATION = """model = "{model}"
model_provider = "tessera"
{catalogue}
check_for_update_on_startup = false

[analytics]
enabled = false

[model_providers.tessera]
name = "Tessera"
base_url = "{url}/v1"
wire_api = "responses"
{more}
"""


def configure(catalogue=True, more=""):
    shutil.rmtree(FOLDER, ignore_errors=True)
    HOME.mkdir(parents=True)
    WORK.mkdir()
    listed = HOME / "models.json"
    with urllib.request.urlopen(URL + "/v1/models") as reply:
        listed.write_bytes(reply.read())
    told = f"model_catalog_json = {json.dumps(str(listed))}" if catalogue else ""
    (HOME / "config.toml").write_text(CONFIGURATION.format(model=MODEL, url=URL, catalogue=told, more=more))


def codex(*words):
    """The events of a turn."""
    flags = ["--json", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"]
    done = subprocess.run([CODEX, "exec", *flags, *words], cwd=WORK, env={**os.environ, "CODEX_HOME": str(HOME)}, stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, (done.stdout + done.stderr)[-2000:]
    events = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert events[-1]["type"] == "turn.completed" and events[-1]["usage"]["output_tokens"] > 0, events[-1]
    return events


def items(events, kind):
    return [event["item"] for event in events if event["type"] == "item.completed" and event["item"]["type"] == kind]


def text():
    configure()
    same(items(codex(ASK), "agent_message")[-1]["text"], HELLO)


def tool_round():
    configure()
    events = codex(CALL)
    [command] = items(events, "command_execution")
    assert command["exit_code"] == 0 and command["aggregated_output"].strip() == "21", command
    same(items(events, "agent_message")[-1]["text"], SEEN)


def resumed():
    """The conversation goes on: the call and its result are sent again."""
    same(items(codex("resume", "--last", ASK), "agent_message")[-1]["text"], HELLO)


def without_catalogue():
    configure(catalogue=False)
    same(items(codex(ASK), "agent_message")[-1]["text"], HELLO)


def websocket_refused():
    """With WebSockets the upgrade is refused with 426, and HTTP serves."""
    configure(more="supports_websockets = true")
    same(items(codex(ASK), "agent_message")[-1]["text"], HELLO)


version = subprocess.run([CODEX, "--version"], capture_output=True, text=True, check=True).stdout.split()[-1]
run(f"codex {version}", [text, tool_round, resumed, without_catalogue, websocket_refused])
