#!/usr/bin/env python3
"""clients.py SERVE CACHE [--model GGUF] [--only NAME ...]: clients that people use, as PyPI has them, against a running service.

SERVE is the program tessera-serve. Each client has an environment of its own in CACHE, made where it is missing by pip; all else that is
written, logs of the clients and of the service among them, is in CACHE too. The service serves scripted_model.py's model, which follows a script, so
that agents make real calls of tools and answer their results; and, for trainings by Tinker's SDK, GGUF (a small model, such as
stories260K; without it these clients are left out). Service and clients run in a network namespace that has loopback alone
(--shared-network: without one), so that a client which insists on another host fails. Prints a line for each client, and a table. The exit
status is 1 where a check fails. Never part of `./dev test`."""
import argparse
import dataclasses
import fcntl
import hashlib
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time

import scripted_model

HERE = pathlib.Path(__file__).resolve().parent
MODEL = "scripted"
COMMAND = "echo $((20+1))"
# The calls that the model makes, by the names of the tools that clients offer: ours, Codex', Claude Code's.
CALLS = {"get_weather": {"city": "Paris"}, "shell_command": {"command": COMMAND}, "exec_command": {"cmd": COMMAND},
         "Bash": {"command": COMMAND, "description": "Adds two numbers"}}
# Statistics and downloads of the clients, off.
QUIET = {"DO_NOT_TRACK": "1", "TINKER_TELEMETRY": "0", "OPENAI_AGENTS_DISABLE_TRACING": "1", "LITELLM_LOCAL_MODEL_COST_MAP": "True", "HF_HUB_OFFLINE": "1",
         "TRANSFORMERS_OFFLINE": "1", "PYTHONWARNINGS": "ignore", "PYTHONDONTWRITEBYTECODE": "1"}


@dataclasses.dataclass
class Client:
    name: str
    packages: list
    script: str
    arguments: list = dataclasses.field(default_factory=lambda: ["URL", "MODEL"])
    limit: int = 600  # seconds


AGENT = ["URL", "MODEL", "FOLDER"]
OPENAI = ["URL", "MODEL", "-", "-"]
CLIENTS = [
    Client("openai-3", ["openai==3.57.0"], "openai_clients.py", OPENAI),
    Client("openai-2", ["openai>=2,<3"], "openai_clients.py", OPENAI),
    Client("anthropic-2", ["anthropic==2.14.0"], "clients/anthropic_client.py"),
    Client("anthropic-0", ["anthropic<1"], "clients/anthropic_client.py"),
    Client("llm-comply", ["llm-comply==0.5.0"], "clients/comply_client.py"),
    Client("langchain", ["langchain-openai==1.7.4", "langchain-anthropic==1.7.10", "langchain-ollama"], "clients/langchain_client.py"),
    Client("llama-index", ["llama-index-llms-openai-like==0.8.1"], "clients/llama_index_client.py"),
    Client("instructor", ["instructor[anthropic]==1.17.0"], "clients/instructor_client.py"),
    Client("pydantic-ai", ["pydantic-ai-slim[openai,anthropic]==2.68.0"], "clients/pydantic_ai_client.py"),
    Client("openai-agents", ["openai-agents==0.24.0"], "clients/openai_agents_client.py"),
    Client("litellm", ["litellm==1.110.2"], "clients/litellm_client.py"),
    Client("ollama", ["ollama"], "clients/ollama_client.py"),
    Client("curl", [], "clients/curl_client.py"),
    Client("codex", ["openai-codex-cli-bin==0.163.0"], "clients/codex_client.py", AGENT),
    Client("claude-code", ["claude-agent-sdk==0.2.189"], "clients/claude_code_client.py", AGENT),
    Client("tinker-0.24", ["tinker==0.24.1", "numpy"], "tinker_clients.py", ["URL", "TRAINED"], 1200),
    Client("tinker-0.38", ["tinker==0.38.0", "numpy"], "tinker_clients.py", ["URL", "TRAINED"], 1200),
    Client("tinker-e2e-0.24", ["tinker==0.24.1", "numpy"], "tinker_e2e.py", ["URL", "TRAINED"], 1200),
    Client("tinker-e2e-0.30", ["tinker==0.30.4", "numpy"], "tinker_e2e.py", ["URL", "TRAINED"], 1200),
    Client("tinker-e2e-0.38", ["tinker==0.38.0", "numpy"], "tinker_e2e.py", ["URL", "TRAINED"], 1200),
]


def environment(client, cache):
    """The Python of the client's environment, made where it is missing."""
    key = hashlib.sha256(" ".join([sys.version, *client.packages]).encode()).hexdigest()[:12]
    folder = cache / "environments" / f"{client.name}-{key}"
    python = folder / "bin" / "python"
    if (folder / "complete").exists():
        return python
    print(f"installing {client.name}: {' '.join(client.packages)}", flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    if client.packages:
        subprocess.run([sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--disable-pip-version-check", *client.packages], check=True)
    (folder / "complete").touch()
    return python


def raise_loopback():
    interface = struct.pack("16sh14x", b"lo", 0x1 | 0x40)  # IFF_UP | IFF_RUNNING
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as found:
        fcntl.ioctl(found, 0x8914, interface)  # SIOCSIFFLAGS


class Service:
    """tessera-serve with a model, until it is closed."""

    def __init__(self, program, cache, name, arguments):
        state = cache / "states" / name
        shutil.rmtree(state, ignore_errors=True)
        state.parent.mkdir(exist_ok=True)
        self.log = cache / "logs" / f"service_{name}.txt"
        with open(self.log, "w", encoding="utf-8") as log:
            self.process = subprocess.Popen([program, *arguments, "--port", "0", "--state", state, "--sequences", "2"], stderr=log, stdout=log)

    def url(self):
        for _ in range(600):
            found = re.search(r'"serving".*"url":"([^"]*)"', self.log.read_text(encoding="utf-8"))
            if found:
                return found[1]
            if self.process.poll() is not None:
                break
            time.sleep(0.1)
        raise SystemExit(f"the service does not start: {self.log.read_text(encoding='utf-8')[-2000:]}")

    def close(self):
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=60)


def check(client, python, url, cache, trained):
    """A row of the table."""
    words = {"URL": url, "MODEL": MODEL, "TRAINED": trained and trained.stem, "FOLDER": str(cache / "folders" / client.name)}
    log = cache / "logs" / f"{client.name}.txt"
    home = cache / "homes" / client.name
    home.mkdir(parents=True, exist_ok=True)
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "LC_ALL", "TMPDIR") if name in os.environ}
    began = time.monotonic()
    try:
        done = subprocess.run([python, "-B", HERE / client.script, *(words.get(word, word) for word in client.arguments)], stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", timeout=client.limit, cwd=home,
                              env={**kept, **QUIET, "HOME": str(home)})
        status, output = done.returncode, done.stdout
    except subprocess.TimeoutExpired as error:
        status, output = 124, (error.stdout or b"").decode(errors="replace") + f"\nFAILED  not done in {client.limit} s"
    log.write_text(output, encoding="utf-8")
    kinds = {kind: re.findall(rf"^{kind}\w*\s+(.*)", output, re.MULTILINE) for kind in ("ok", "FAIL", "refused")}
    version = re.findall(r"^(.*): \d+ passed, \d+ failed", output, re.MULTILINE)[-1:] or re.findall(r"^tinker \S+", output, re.MULTILINE)[:1] or [client.name]
    green = status == 0 and kinds["ok"] and not kinds["FAIL"]
    remarks = [f"failed: {name}" for name in kinds["FAIL"]] + [f"refused: {name.split(':')[0]}" for name in kinds["refused"]]
    if not green and not kinds["FAIL"]:
        remarks.append(f"exit status {status}, {log}")
    return {"client": version[0].removesuffix(":"), "green": bool(green), "passed": len(kinds["ok"]), "failed": len(kinds["FAIL"]),
            "seconds": time.monotonic() - began, "remarks": "; ".join(remarks)}


def show(rows):
    width = max(len(row["client"]) for row in rows)
    print(f"\n{'client':{width}} {'':6} passed failed      s  remarks")
    for row in rows:
        print(f"{row['client']:{width}} {'green' if row['green'] else 'RED':6} {row['passed']:6} {row['failed']:6} {row['seconds']:6.1f}  {row['remarks'][:200]}")


def run(given, cache, clients):
    trained = given.model and given.model.resolve()
    pythons = {client.name: environment(client, cache) for client in clients}
    if not given.shared_network:
        # Again, where there is no network but loopback.
        again = [sys.executable, "-B", __file__, str(given.serve), str(cache), "--shared-network", "--loopback"]
        again += ["--model", str(trained)] * bool(trained) + ["--only", *pythons]
        sys.stdout.flush()
        return subprocess.run(["unshare", "--map-root-user", "--net", *again], check=False).returncode
    if given.loopback:
        raise_loopback()
    (cache / "logs").mkdir(exist_ok=True)
    rows, ended = [], []
    for name, arguments, served in services(cache, trained, clients):
        service = Service(given.serve.resolve(), cache, name, arguments)
        try:
            url = service.url()
            for client in served:
                rows.append(check(client, pythons[client.name], url, cache, trained))
                print(json.dumps(rows[-1]), flush=True)
        finally:
            ended.append(service.close())
    show(rows)
    print(f"services ended with {ended}; logs in {cache / 'logs'}")
    return int(any(ended) or not all(row["green"] for row in rows))


def services(cache, trained, clients):
    """The name of each service that is needed, its arguments, and its clients."""
    training = [client for client in clients if "TRAINED" in client.arguments]
    others = [client for client in clients if client not in training]
    if others:
        folder = cache / "models" / MODEL
        shutil.rmtree(folder, ignore_errors=True)
        # Agents send long prompts; the names are those of models that llm-comply asks to reason.
        names = [f"--alias={prefix}-{MODEL}={MODEL}" for prefix in ("gpt-5", "claude-sonnet-4")]
        yield "scripted", [scripted_model.write_scripted_model(folder, CALLS), *names, "--context", "131072"], others
    if training:
        yield "trained", [trained, "--train-context", "128"], training


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("serve", type=pathlib.Path, metavar="SERVE")
    parser.add_argument("cache", type=pathlib.Path, metavar="CACHE")
    parser.add_argument("--model", type=pathlib.Path, metavar="GGUF")
    parser.add_argument("--only", nargs="+", choices=[client.name for client in CLIENTS], metavar="NAME")
    parser.add_argument("--shared-network", action="store_true")
    parser.add_argument("--loopback", action="store_true", help=argparse.SUPPRESS)  # the network has loopback alone, which is down
    given = parser.parse_args()
    cache = given.cache.resolve()
    cache.mkdir(parents=True, exist_ok=True)
    wanted = [client for client in CLIENTS if not given.only or client.name in given.only]
    clients = [client for client in wanted if given.model or "TRAINED" not in client.arguments]
    for client in wanted:
        if client not in clients:
            print(f"left out: {client.name}, without --model")
    sys.exit(run(given, cache, clients))


if __name__ == "__main__":
    main()
