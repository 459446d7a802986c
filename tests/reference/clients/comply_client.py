#!/usr/bin/env python3
"""comply_client.py URL MODEL: llm-comply's tests of the three dialects against a service with the scripted model.

Its tests of reasoning run for names of known models alone, so the service has the model under two of these too. Refused by design: images, of which
the service reads none, and compaction, which needs stored conversations. Wanted: all others."""
import importlib.metadata
import json
import pathlib
import subprocess
import sys

URL, MODEL = sys.argv[1:3]
FORMATS = {"openai-chat": "gpt-5-" + MODEL, "anthropic": "claude-sonnet-4-" + MODEL, "open-responses": "gpt-5-" + MODEL}
REFUSED = {"chat-image-input", "anth-image-input", "image-input", "compact-response", "compact-missing-model"}
command = pathlib.Path(sys.executable).with_name("llm-comply")
passed = failed = total = 0
for form, model in FORMATS.items():
    asked = [command, "--base-url", URL + "/v1", "--api-key", "none", "--model", model, "--format", form, "--json"]
    report = json.loads(subprocess.run(asked, capture_output=True, text=True, timeout=300).stdout)
    for result in report["results"]:
        total += 1
        complaints = "; ".join(result.get("errors", []))
        warned = "[warning]" in complaints or result["status"] not in ("passed", "failed")
        if result["status"] == "passed" and not warned:
            passed += 1
            print(f"ok      {form} {result['id']}")
        elif result["id"] in REFUSED:
            print(f"refused {form} {result['id']}: {complaints[:200]}")
        else:
            failed += 1
            print(f"FAILED  {form} {result['id']}: {result['status']} {complaints}")
print(f"llm-comply {importlib.metadata.version('llm-comply')}: {passed} passed, {failed} failed, of {total}")
sys.exit(failed != 0)
