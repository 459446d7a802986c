#!/usr/bin/env bash
# check.sh BUILD: the CUDA backend on the CPU. Every op against its references, every test that talks to the plugin
# itself, collectives of GPUs that share one device, of four with NCCL between them and of four with nothing but the
# host, and a model that four train as one does.
set -euo pipefail
build=$(cd "$1" && pwd)
export TESSERA_PLUGIN_PATH=$build/emulated TESSERA_EMULATOR_SEED=1
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

export TESSERA_TEST_BACKEND=cuda
"$build/tests/test_ops" -tc='every_op_passes_the_five_checks*' >"$scratch/ops.txt" 2>&1 &
ops=$!
for program in ops backends capi; do "$build/tests/test_$program" -ts=gpu; done
for cudnn in large missing refuses fails wrong unordered; do
  TESSERA_EMULATED_CUDNN=$cudnn "$build/tests/test_ops" -tc="attention_goes*$([ $cudnn = large ] && echo ',a_gradient_by*')"
done
# Attention by rows: every case, and what an L40S's shared memory has no room for.
for op in attention attention_grad; do TESSERA_TEST_OP=$op TESSERA_TEST_VARIANT=rows "$build/tests/test_ops" -tc='every_op_*'; done
TESSERA_EMULATED_DEVICE=l40s TESSERA_TEST_OP=attention_grad TESSERA_TEST_VARIANT=tiles "$build/tests/test_ops" -tc='every_op_in_f16*'
wait $ops || { cat "$scratch/ops.txt"; exit 1; }
cat "$scratch/ops.txt"
TESSERA_EMULATOR_DEVICES=4 TESSERA_EMULATED_PEERS=none TESSERA_EMULATED_NCCL=missing \
  "$build/tests/test_runtime" -sf='*communicator_test*' >"$scratch/no_peers.txt" 2>&1 &
no_peers=$!
for devices in 1 4; do
  TESSERA_EMULATOR_DEVICES=$devices "$build/tests/test_runtime" -sf='*communicator_test*,*captured_collectives_test*,*nccl_refusals_test*'
done
wait $no_peers || { cat "$scratch/no_peers.txt"; exit 1; }
cat "$scratch/no_peers.txt"

cd "$scratch"
tessera=$build/cli/tessera
for i in $(seq 200); do echo "the tiles of one mosaic lie side by side, number $((i * i))"; done >text.txt
"$tessera" new llama:L=2,C=32,H=4,KV=2,F=48,V=256,T=32 --out model.tsr --tokenizer bytes >/dev/null
trained() {  # trained DEVICES PARALLEL: losses of the first and the last step
  "$tessera" train model.tsr --data text.txt --devices "$1" --parallel "$2" --batch 8 --seq 32 --steps 3 --lr 3e-3 \
    --out trained.tsr --overwrite >train.txt 2>&1 || { cat train.txt; return 1; }
  awk '/^loss / { print $2, $4 }' train.txt
}
wanted=$(trained cpu:1 dp=1)
export TESSERA_EMULATOR_DEVICES=4
for parallel in dp=4,zero=3 tp=2,dp=2,zero=1 dp=2,pp=2; do
  # The last where GPUs do not reach each other's memory.
  found=$(TESSERA_EMULATED_PEERS=$([ $parallel = dp=2,pp=2 ] && echo none) trained cuda:0,1,2,3 $parallel)
  echo "ok: trained on four emulated GPUs | $parallel | loss $found | one CPU $wanted"
  # Sums in another order, in f32; printed to six figures.
  echo "$found $wanted" | awk '{ for (i = 1; i <= 2; ++i) if (!($i > 0) || ($i - $(i + 2)) ^ 2 > (1e-5 * $i) ^ 2) exit 1 }' ||
    { echo "that is not what one device makes of it"; exit 1; }
done
