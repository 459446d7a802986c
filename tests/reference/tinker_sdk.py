"""What the scripts share that run Tinker's SDK: a line for each check, texts as tokens of the service, batches, passes."""

import json
import os
import sys
import urllib.request
import warnings

warnings.simplefilter("ignore")
os.environ.setdefault("TINKER_TELEMETRY", "0")
os.environ.setdefault("TINKER_API_KEY", "tml-local")

import numpy as np  # noqa: E402
from tinker import types  # noqa: E402

KEY = os.environ["TINKER_API_KEY"]
failures = 0


def check(name, passed, found=""):
    global failures
    failures += not passed
    print(f"{'ok  ' if passed else 'FAIL'} {name}{': ' + str(found) if found != '' else ''}", flush=True)


def post(base, path, body):
    request = urllib.request.Request(base + path, json.dumps(body).encode(), {"Content-Type": "application/json", "X-API-Key": KEY})
    with urllib.request.urlopen(request, timeout=60) as reply:
        return json.load(reply)


def end():
    """Ends the script, whatever threads the SDK has left."""
    print("failed:", failures)
    sys.stdout.flush()
    os._exit(failures > 0)


def tokens_of(base, model, text):
    return post(base, "/tokenize", {"model": model, "prompt": text, "add_special_tokens": True})["tokens"]


def text_of(base, model, tokens):
    return post(base, "/detokenize", {"model": model, "tokens": list(map(int, tokens))})["prompt"]


def datum_of(tokens, **inputs):
    inputs = {name: np.asarray(values, np.float32) for name, values in inputs.items()}
    return types.Datum(model_input=types.ModelInput.from_ints(tokens[:-1]),
                       loss_fn_inputs={"target_tokens": np.asarray(tokens[1:], np.int64), **inputs})


def overfit(client, tokens, rate, steps):
    losses = []
    for _ in range(steps):
        passed = client.forward_backward([datum_of(tokens, weights=np.ones(len(tokens) - 1))], "cross_entropy")
        stepped = client.optim_step(types.AdamParams(learning_rate=rate))
        losses.append(passed.result().metrics["loss:sum"] / (len(tokens) - 1))
        stepped.result()
    return losses


def logprobs_of(output):
    return np.asarray(output.loss_fn_outputs[0]["logprobs"].tolist(), np.float64)


def sampled(client, prompt, **settings):
    return client.sample(prompt=types.ModelInput.from_ints(prompt), num_samples=settings.pop("num_samples", 1),
                         sampling_params=types.SamplingParams(**settings)).result()
