#!/usr/bin/env bash
# python.sh WORK: the Python binding against an installed library, which pkg-config and the dynamic linker find. WORK has
# small.tsr, text.txt, chat.txt and, in expected/, what the C samples wrote. PYTHON: another interpreter than python3.
# TESSERA_PYTHON: a folder with the package `tessera`, instead of one that build.sh makes.
set -euo pipefail
here=$(cd "$(dirname "$0")/../.." && pwd)
work=$(cd "$1" && pwd)
python=${PYTHON:-python3}
package=${TESSERA_PYTHON:-}
if [ -z "$package" ]; then
  package=$work/python
  PYTHON=$python CFLAGS=-Werror bash "$here/bindings/python/build.sh" "$package"
fi
export PYTHONPATH=$package PYTHONDONTWRITEBYTECODE=1
export TESSERA_CHECK_MODEL=$work/small.tsr TESSERA_CHECK_TEXT=$work/text.txt
cd "$here/tests/install/python"
check() {  # check MODULE WHAT
  "$python" -X faulthandler -W error::ResourceWarning -m unittest -q "$1" 2>"$work/$1.txt" || { cat "$work/$1.txt"; exit 1; }
  # Exceptions where none can be raised, as in finalisers, are printed alone.
  ! grep -E "Exception ignored|Exception in thread" "$work/$1.txt" || { cat "$work/$1.txt"; exit 1; }
  echo "ok: Python: $2$(sed -n 's/^OK (\(.*\))$/ (\1)/p' "$work/$1.txt")"
}
check test_errors "errors are the builtins that fit, with their whole text"
check test_handles "closed handles and none are refused; other threads, finalisers and forks may free them"
check test_memory "buffers and DLPack cross both ways without a copy, and are let go"
check test_runtime "a function hears the log, hooks bring memory and are told of threads; what they raise does no harm"
check test_texts "texts with NULs and other bytes cross whole; conversations become tokens"
check test_generation "texts come in loops, asyncio and threads, and end when dropped, cancelled or interrupted"
check test_engine "many requests at once have the texts of one at a time, in loops, asyncio and threads, and end as texts do"
check test_sequences "sequences fork, rewind, go on in any engine and come back from files; requests have adapters"
check test_training "training, plans, programs; cancels and Ctrl-C end them"
check test_runs "training runs tell what happens, stop from any thread or by Ctrl-C with a checkpoint, and go on to the same file"
check test_files "long work tells its progress; what that raises ends it and leaves nothing"
check test_steps "so do datasets, plans, checkpoints and saved models, whose files are the same bytes"
check test_hostile "whatever is passed, calls raise exceptions"
check test_exit "the interpreter ends cleanly, whatever is alive or in progress"

(cd "$work" && "$python" "$here/tests/install/python/sequences.py" small.tsr sequence_python >sequences_python.txt)
cmp "$work/expected/sequences.txt" "$work/sequences_python.txt"
cmp "$work/expected/sequence" "$work/sequence_python"
echo "ok: Python: sequences that are forked, rewound, saved and restored go on as in C; their file is the same"

samples=$here/samples/python
cd "$work"
"$python" "$samples/finetune.py" small.tsr text.txt tuned_python.tsr cpu:2 20 >python.txt
diff <(grep -v '^plan' expected/finetune.txt) <(grep -v '^plan' python.txt) || { echo "FAILED: finetune: C and Python differ"; exit 1; }
cmp expected/tuned.tsr tuned_python.tsr
echo "ok: Python sample: $(tail -1 python.txt), every loss equal to the C sample's to the bit, and the same model file"
bash "$here/tests/install/training_run.sh" expected/run.tsr run_python.tsr "$python" "$samples/training_run.py" small.tsr text.txt \
  run_python.tsr 20
echo "ok: Python: a training run that is killed goes on from its checkpoint, to the files of the command"
same() {  # same SAMPLE ARGUMENTS: it prints what the C sample printed
  "$python" "$samples/$1.py" "${@:2}" | diff "expected/$1.txt" - || { echo "FAILED: $1: C and Python differ"; exit 1; }
}
same generate tuned_python.tsr "A computer" 8
same own_model
same plan small.tsr cpu:4 8
"$python" "$samples/chat_server.py" small.tsr 8 cpu:2 0 '{{ messages[-1].content }}' <chat.txt | sort -s -k1,1 |
  diff expected/chat_server.txt - || { echo "FAILED: chat_server: C and Python differ"; exit 1; }
printf 'ann A computer\nann again\nann /stop\nbob is\n' |
  "$python" "$samples/chat_server.py" --stream small.tsr 50 cpu:1 0 '{{ messages[-1].content }}' >stream.txt
grep -q '^bob: ' stream.txt
for sample in chat_server finetune generate plan training_run; do
  status=0
  "$python" "$samples/$sample.py" 2>/dev/null || status=$?
  [ "$status" = 2 ] || { echo "FAILED: $sample.py without arguments: status $status, wanted 2"; exit 1; }
done
"$python" "$samples/plan.py" nowhere cpu:1 2>failure.txt && { echo "FAILED: plan.py of no model"; exit 1; }
grep -q '^not_found: nowhere: ' failure.txt

# The example of README.md, with its files.
mkdir -p readme
cp small.tsr text.txt readme/
mv readme/text.txt readme/notes.txt
sed -n '/^```python$/,/^```$/{/^```$/q;/^```/d;p}' "$here/bindings/python/README.md" | sed 's/steps=200/steps=5/' >readme/example.py
(cd readme && "$python" -c 'import tessera
model = tessera.load("small.tsr")
model.set_metadata("chat_template", "{{ messages[0].content }}")
model.save("chat.tsr")' && mv chat.tsr small.tsr && "$python" example.py >printed.txt)
grep -q '^[0-9]* [0-9.]*$' readme/printed.txt
echo "ok: Python samples and the README's example print what they should"
