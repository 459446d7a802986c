#!/usr/bin/env python3
"""curl_client.py URL MODEL: curl against a service with the scripted model: the service's own example, streams, refusals, errors."""
import json
import subprocess
import sys

from rounds import ASK, HELLO, run, same

URL, MODEL = sys.argv[1:3]
USER = [{"role": "user", "content": ASK}]


def curl(path, *words, body=None, status=200):
    """The reply's body; its status must be status."""
    given = [] if body is None else ["-H", "Content-Type: application/json", "-d", json.dumps(body)]
    done = subprocess.run(["curl", "-sS", "--max-time", "60", "-w", "\n%{http_code}", *words, *given, URL + path], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    text, _, code = done.stdout.rpartition("\n")
    assert int(code) == status, f"{path}: {code} {text}"
    return text


def events(text):
    """The data of server-sent events."""
    return [line[len("data: "):] for line in text.splitlines() if line.startswith("data: ")]


def chat():
    same(json.loads(curl("/v1/chat/completions", body={"model": MODEL, "messages": USER}))["choices"][0]["message"]["content"], HELLO)
    *pieces, done = events(curl("/v1/chat/completions", "-N", body={"model": MODEL, "messages": USER, "stream": True}))
    assert done == "[DONE]"
    same("".join(json.loads(piece)["choices"][0]["delta"].get("content") or "" for piece in pieces), HELLO)


def other_dialects():
    same(json.loads(curl("/v1/messages", "-H", "anthropic-version: 2023-06-01", body={"model": MODEL, "max_tokens": 50, "messages": USER}))
         ["content"][0]["text"], HELLO)
    same(json.loads(curl("/v1/responses", body={"model": MODEL, "input": ASK}))["output"][0]["content"][0]["text"], HELLO)
    same(json.loads(curl("/api/chat", body={"model": MODEL, "messages": USER, "stream": False}))["message"]["content"], HELLO)
    assert json.loads(curl("/v1/completions", body={"model": MODEL, "prompt": "The rivers", "max_tokens": 4}))["choices"][0]["text"]


def form_without_a_type():
    """curl -d alone says that the body is a form."""
    done = curl("/v1/chat/completions", "-d", json.dumps({"model": MODEL, "messages": USER}))
    same(json.loads(done)["choices"][0]["message"]["content"], HELLO)


def operators():
    assert MODEL in [model["id"] for model in json.loads(curl("/v1/models"))["data"]]
    assert curl("/health") and "_total" in curl("/metrics") and json.loads(curl("/openapi.json"))["paths"] and json.loads(curl("/version"))["version"]
    assert json.loads(curl("/plan?model=" + MODEL)) and curl("/health", "-I") is not None


def tokens():
    found = json.loads(curl("/tokenize", body={"model": MODEL, "prompt": "a river"}))["tokens"]
    assert json.loads(curl("/detokenize", body={"model": MODEL, "tokens": found}))["prompt"] == "a river"


def refusals():
    chat_path, body = "/v1/chat/completions", {"model": MODEL, "messages": USER}
    assert "error" in json.loads(curl("/nowhere", status=404)) and "error" in json.loads(curl(chat_path, "-X", "DELETE", status=405))
    assert json.loads(curl(chat_path, "-d", "{", status=400))["error"]["message"]
    assert json.loads(curl(chat_path, body={**body, "model": "none of these"}, status=404))["error"]["code"] == "model_not_found"
    assert json.loads(curl(chat_path, body={**body, "temprature": 1}, status=400))["error"]["param"] == "temprature"
    curl(chat_path, "-H", "Host: other.example", body=body, status=403)
    curl(chat_path, "-H", "Origin: https://other.example", body=body, status=403)


version = subprocess.run(["curl", "--version"], capture_output=True, text=True, check=True).stdout.split()[1]
run(f"curl {version}", [chat, other_dialects, form_without_a_type, operators, tokens, refusals])
