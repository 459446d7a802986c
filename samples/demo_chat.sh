#!/usr/bin/env bash
# The main job on a real model: low-rank adapters over the 4-bit weights of SmolLM2-135M-Instruct learn the voice of a
# lighthouse keeper from a chat file, on two devices. Arguments: the tessera command, the model.
set -euo pipefail
tessera=$1 model=$2
data=$(cd "$(dirname "${BASH_SOURCE[0]}")/data" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
question="How do I make a cup of coffee?"
ask() { "$tessera" chat "$@" --message "$question" --temp 0 --tokens 60 2>/dev/null || true; echo; }
held_out() { "$tessera" eval "$@" --data "$data/keeper_held_out.jsonl" --seq 256 --batch 4 --json 2>/dev/null |
  python3 -c 'import json, sys; print(json.loads(sys.stdin.read().splitlines()[-1])["eval_loss"])'; }

echo "== 1. the data, as the model will see it"
"$tessera" data "$data/keeper.jsonl" --model "$model" --seq 256 --packing bfd

echo; echo "== 2. before: held-out loss, and an answer"
before=$(held_out "$model")
echo "held-out loss $before nats per token of the keeper's answers"
echo "> $question"
ask "$model" | tee "$work/before.txt"

echo; echo "== 3. fine-tune adapters of rank 16 over its 4-bit weights, on two devices of 800 MiB (one would need 1.4 GiB)"
"$tessera" train "$model" --data "$data/keeper.jsonl" --eval-file "$data/keeper_held_out.jsonl" --packing bfd --seq 256 --batch 4 \
  --lora 16 --steps 60 --lr 1e-3 --schedule cosine --seed 1 --devices cpu:2 --memory-limit 800MiB --out "$work/keeper" \
  --json >"$work/train.json"
python3 - "$work/train.json" <<'END'
import json, sys
r = json.loads(open(sys.argv[1]).read().strip().splitlines()[-1])
print(f"loss {r['losses'][0]:.3f} -> {r['losses'][-1]:.3f}, {r['tokens_per_second']:.0f} tokens/s; plan: {r['plan']['strategy']}")
for d in r["devices"]:
    print(f"{d['name']}: arena predicted {d['arena_bytes']['predicted']} bytes, measured {d['arena_bytes']['measured']}")
END

echo; echo "== 4. after: held-out loss, and the same question"
after=$(held_out "$model" --adapter "$work/keeper")
echo "held-out loss $before -> $after"
echo "> $question"
ask "$model" --adapter "$work/keeper" | tee "$work/after.txt"

echo; echo "== 5. one file for llama.cpp, adapters taken into the weights"
"$tessera" export "$model" --adapter "$work/keeper" --merged --format gguf --type q8_0 -o "$work/keeper.gguf"
ls -l "$work/keeper.gguf" | awk '{ print $5, "bytes" }'
echo "> $question"
ask "$work/keeper.gguf" | tee "$work/exported.txt"

python3 - "$before" "$after" "$work" <<'END'
import pathlib, sys
before, after, work = float(sys.argv[1]), float(sys.argv[2]), pathlib.Path(sys.argv[3])
assert after < 0.8 * before, f"held-out loss fell from {before} to {after}: wanted a fifth less"
for name, wanted in (("before", False), ("after", True), ("exported", True)):
    said = (work / f"{name}.txt").read_text()
    assert ("Aye" in said) == wanted, f"the answer {name} training: {said!r}"
END
