#!/usr/bin/env bash
# namespaces.sh BUILD: machines are network namespaces with names of their own, on a bridge; each link has 1 Gbit/s (tbf). Shared memory is off between
# them. All forms at 4 machines and 12 mixtures at 2 have the bits of one process; a training writes the file of one; the network is measured, and
# plans of several machines are priced with it; a link that is cut ends a training in time, and its checkpoint holds. Needs root.
set -euo pipefail
build=$(cd "$1" && pwd)
if [ "$(id -u)" -ne 0 ] || ! command -v ip >/dev/null || ! command -v mpirun >/dev/null || [ ! -e "$build/capi/libtessera_mpi.so" ]; then
  echo "skipped | processes of several machines | they want root, iproute2 and Open MPI"
  exit 0
fi
tessera=$build/cli/tessera
work=$(mktemp -d)
prefix=tsr$$
machines=4
clean() {
  for i in $(seq $machines); do ip netns del "$prefix-$i" 2>/dev/null || true; done
  ip link del "$prefix" 2>/dev/null || true
  rm -rf "$work"
}
trap clean EXIT
fail() { echo "FAILED: $*" >&2; exit 1; }
export TESSERA_PROFILE=none TESSERA_PLUGIN_PATH=$build/capi OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

subnet=10.213.77
if ! ip link add "$prefix" type bridge 2>"$work/ip.txt"; then
  echo "skipped | processes of several machines | no bridge: $(cat "$work/ip.txt")"
  exit 0
fi
ip addr add $subnet.100/24 dev "$prefix" && ip link set "$prefix" up
rate() { # rate RATE: of every machine's link
  for i in $(seq $machines); do
    tc qdisc replace dev "$prefix-$i" root tbf rate "$1" burst 256kb latency 50ms
    ip netns exec "$prefix-$i" tc qdisc replace dev eth0 root tbf rate "$1" burst 256kb latency 50ms
  done
}
for i in $(seq $machines); do
  ip netns add "$prefix-$i"
  ip link add "$prefix-$i" type veth peer name eth0 netns "$prefix-$i"
  ip link set "$prefix-$i" master "$prefix" up
  ip netns exec "$prefix-$i" ip addr add $subnet.$i/24 dev eth0
  ip netns exec "$prefix-$i" ip link set eth0 up
  ip netns exec "$prefix-$i" ip link set lo up
done
rate 1gbit
cat >"$work/agent" <<'A'
#!/bin/sh
machine=$1
shift
exec ip netns exec "$machine" unshare -u sh -c "hostname $machine; $*"
A
chmod +x "$work/agent"
over() { # over MACHINES COMMAND...
  local hosts= i count=$1
  shift
  for i in $(seq "$count"); do hosts+=${hosts:+,}$prefix-$i:1; done
  timeout 300 mpirun -n "$count" -H "$hosts" --mca plm_rsh_agent "$work/agent" --mca plm_rsh_no_tree_spawn 1 --mca pml ob1 --mca btl tcp,self --mca btl_tcp_if_include $subnet.0/24 \
    --mca oob_tcp_if_include $subnet.0/24 -x TESSERA_PROFILE -x TESSERA_PLUGIN_PATH -x TESSERA_MIXTURES "$@"
}
forms() { # forms MACHINES
  over "$1" "$build/tests/test_conformance" -ts="on request" -tc="forms over launched*" >"$work/forms.txt" 2>&1 || { cat "$work/forms.txt"; fail "forms at $1 machines"; }
  grep -h '^processes | ' "$work/forms.txt" || { cat "$work/forms.txt"; fail "no form was compared"; }
}
over 2 sh -c 'hostname' >"$work/names.txt" 2>&1 || { cat "$work/names.txt"; fail "processes of two machines"; }
[ "$(sort -u "$work/names.txt" | grep -c "^$prefix-")" = 2 ] || { cat "$work/names.txt"; fail "the machines have one name"; }
forms 4
TESSERA_MIXTURES=12:5 forms 2

# ---- the network is measured, and prices plans: dp moves the gradients between machines
"$tessera" new "gpt2:L=4,C=128,H=4,V=512,T=128" --tokenizer bytes -o "$work/model.tsr" >"$work/new.log"
for i in $(seq 600); do echo "line $i of a text about number $((i * 7 % 50)), and what it does"; done >"$work/text.txt"
export TESSERA_THREADS=1
for rate in 100mbit 1gbit; do
  rate $rate
  over 2 -x TESSERA_THREADS "$tessera" calibrate --seconds 6 --out "$work/$rate.json" --json >"$work/calibrate.txt" 2>&1 || { cat "$work/calibrate.txt"; fail "the measurement at $rate"; }
done
python3 - "$work" <<'P' || fail "the network was measured wrongly"
import json, sys
rates = {name: json.load(open(f"{sys.argv[1]}/{name}.json"))["content"]["network"] for name in ("100mbit", "1gbit")}
print("network | measured", *(f"{name}: {found['bytes_per_s'] * 8e-6:.0f} Mbit/s, {found['latency_s'] * 1e6:.0f} us" for name, found in rates.items()), sep=" | ")
# Headers take some percent; bursts of the filter give some.
sys.exit(any(not 0.75 * bits < rates[name]["bytes_per_s"] * 8 < 1.25 * bits for name, bits in (("100mbit", 1e8), ("1gbit", 1e9))))
P
common=(train "$work/model.tsr" --data "$work/text.txt" --seq 64 --batch 4 --seed 3 --devices cpu:1)
"$tessera" "${common[@]/cpu:1/cpu:2}" --parallel dp=2 --steps 6 --out "$work/one.tsr" >/dev/null 2>&1
over 2 "$tessera" "${common[@]}" --parallel dp=2 --steps 6 --out "$work/two.tsr" >"$work/two.txt" 2>&1 || { cat "$work/two.txt"; fail "a training on two machines"; }
cmp "$work/one.tsr" "$work/two.tsr" || fail "a training on two machines writes another file"
grep -q 'a step between machines' "$work/two.txt" || { cat "$work/two.txt"; fail "the plan does not say what crosses machines"; }

# ---- a cut link
over 2 "$tessera" "${common[@]}" --parallel dp=2 --steps 100000 --checkpoint-every 2 --process-timeout 2 --out "$work/cut.tsr" >"$work/cut.txt" 2>&1 &
launcher=$!
for _ in $(seq 200); do [ -e "$work/cut.tsr.checkpoint/manifest" ] && break; sleep 0.1; done
ip link set "$prefix-2" down
trainings() { # the processes of it; mpirun itself does not notice
  local found
  for found in $(pgrep -x tessera || true); do grep -qaF "$work/cut.tsr" "/proc/$found/cmdline" 2>/dev/null && echo "$found"; done
  true
}
for i in $(seq 300); do
  [ -z "$(trainings)" ] && break
  [ "$i" -lt 300 ] || { cat "$work/cut.txt"; fail "a cut link does not end a training within 30 s"; }
  sleep 0.1
done
kill $launcher 2>/dev/null || true
pkill -f "^mpirun .*$prefix-2:1" || true
wait $launcher || true
grep -Eq 'has not been heard of|lost connection|ORTE has lost communication' "$work/cut.txt" || { cat "$work/cut.txt"; fail "no message tells of the cut link"; }
"$tessera" train "$work/model.tsr" --data "$work/text.txt" --seq 64 --batch 4 --seed 3 --steps 100000 --devices cpu:1 --resume "$work/cut.tsr" --out "$work/on.tsr" >"$work/on.txt" 2>&1 &
on=$!
sleep 3
kill -INT $on
wait $on || true
grep -q 'resumed at step' "$work/on.txt" || { cat "$work/on.txt"; fail "the checkpoint of a training that was cut does not hold"; }
echo "ok: $machines machines in namespaces"
