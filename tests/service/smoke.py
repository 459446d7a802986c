#!/usr/bin/env python3
"""smoke.py TESSERA MODEL FOLDER: `tessera serve` of a small model answers, refuses a method, gives its page, and ends by SIGTERM."""
import json
import pathlib
import shutil
import signal
import subprocess
import sys
import urllib.error
import urllib.request

tessera, folder = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[3])
shutil.rmtree(folder, ignore_errors=True)
folder.mkdir(parents=True)
shutil.copy(sys.argv[2], folder / "small.tsr")
service = subprocess.Popen([tessera, "serve", "small.tsr", "--port", "0", "--sequences", "2", "--state", "state"], cwd=folder, stderr=subprocess.PIPE,
                           text=True)
try:
    line = next(line for line in service.stderr if '"serving"' in line)
    base = json.loads(line)["url"]

    def ask(path, body=None, method=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(base + path, data, {"Content-Type": "application/json"}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=60) as reply:
                return reply.status, reply.headers, reply.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.headers, error.read().decode()

    status, _, text = ask("/v1/completions", {"model": "small", "prompt": "Once", "max_tokens": 4})
    assert status == 200 and json.loads(text)["usage"]["completion_tokens"] == 4, text
    status, headers, text = ask("/v1/completions", method="DELETE")
    assert status == 405 and headers["Allow"] == "POST", text
    status, headers, text = ask("/")
    assert status == 200 and headers["Content-Security-Policy"].startswith("default-src 'self'") and "<title>Tessera</title>" in text
    plan = json.loads(ask("/plan?model=small")[2])["plan"]["serving"]
    assert plan["sequences"] == 2 and plan["devices"][0]["fits"], plan
    assert json.loads(ask("/v1/fine_tuning/jobs")[2])["data"] == []
finally:
    service.send_signal(signal.SIGTERM)
    service.stderr.read()
assert service.wait(timeout=60) == 0, service.returncode
print("ok: tessera serve answers, plans, refuses and ends")
