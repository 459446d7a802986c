#!/usr/bin/env bash
# The main job on real text: a small Llama is trained from scratch, saved, fine-tuned on a second text over two
# devices, and asked to write. Argument: the tessera command.
set -euo pipefail
tessera=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fortunes=/usr/share/games/fortunes
# Fortunes are separated by lines of "%"; tables of pictures and jokes in verse are left out.
for part in cookie definitions literature people wisdom work; do
  if [ -f "$fortunes/$part" ]; then sed 's/^%$//' "$fortunes/$part"; fi
done >"$work/prose.txt"
sed 's/^%$//' "$fortunes/computers" >"$work/computers.txt"
wc -c "$work"/*.txt

echo; echo "== 1. a new small Llama with a byte vocabulary"
"$tessera" new llama:L=4,C=192,H=6,KV=3,F=512,V=256,T=256 --tokenizer bytes --seed 1 -o "$work/new.tsr"
"$tessera" inspect "$work/new.tsr"

echo; echo "== 2. train it from scratch (held-out loss against the unigram entropy of the text)"
"$tessera" train "$work/new.tsr" --data "$work/prose.txt" --steps 200 --batch 16 --seq 128 --lr 3e-3 --warmup 20 \
  --schedule cosine --clip-norm 1 --seed 1 --eval-fraction 0.1 --out "$work/prose.tsr" --json >"$work/train.json"
python3 - "$work/train.json" <<'END'
import json, sys
r = json.loads(open(sys.argv[1]).read().strip().splitlines()[-1])
share = r["eval_loss"] / r["unigram_entropy"]
print(f"first loss {r['losses'][0]:.3f}, last {r['losses'][-1]:.3f}; held-out loss {r['eval_loss']:.3f} nats per byte, "
      f"unigram entropy {r['unigram_entropy']:.3f}: {100 * (1 - share):.0f} % below")
print(f"{r['tokens_per_second']:.0f} tokens/s; plan: {r['plan']['strategy']}")
sys.exit(share > 0.75)
END

echo; echo "== 3. fine-tune it on a second text over two devices of 80 MiB: the step takes 119 MiB on one"
"$tessera" train "$work/prose.tsr" --data "$work/computers.txt" --steps 60 --batch 16 --seq 128 --lr 1e-3 --devices cpu:2 \
  --memory-limit 80MiB --clip-norm 1 --seed 2 --eval-fraction 0.1 --out "$work/computers.tsr" --json >"$work/tune.json"
python3 - "$work/tune.json" <<'END'
import json, sys
r = json.loads(open(sys.argv[1]).read().strip().splitlines()[-1])
print(f"loss {r['losses'][0]:.3f} -> {r['losses'][-1]:.3f}, held-out {r['eval_loss']:.3f}; plan: {r['plan']['strategy']}")
for d in r["devices"]:
    print(f"{d['name']}: arena predicted {d['arena_bytes']['predicted']} bytes, measured {d['arena_bytes']['measured']}")
sys.exit(r["losses"][-1] >= r["losses"][0])
END

echo; echo "== 4. generate"
"$tessera" generate "$work/computers.tsr" --prompt "A computer is " -n 160 --temp 0.7 --seed 3
echo
