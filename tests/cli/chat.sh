#!/usr/bin/env bash
# Conversations on the command line, with a model of bytes. Arguments: tessera, folder.
set -euo pipefail
tessera=$1 work=$2/chat
mkdir -p "$work"
fail() { echo "FAILED: $*"; exit 1; }
says() { grep -qE -- "$2" "$1" || { cat "$1"; fail "no '$2' in $1"; }; }  # says FILE PATTERN
model=$work/bytes.tsr
"$tessera" new llama:L=1,C=32,H=2,F=48,V=256,T=512 --tokenizer bytes -o "$model" >/dev/null
cat >"$work/chat.jinja" <<'T'
{% for m in messages %}[{{ m.role }}]{{ m.content }}
{% endfor %}{% if tools %}{{ tools[0].name }}{% endif %}{{ mood }}{% if add_generation_prompt %}[assistant]{% endif %}
T
chat() { "$tessera" chat "$model" -n 4 --temp 0 "$@" >"$work/out.txt" 2>"$work/err.txt"; }

! chat --message hi || fail "a model without a template talked"
says "$work/err.txt" 'has no chat template: give one with --template FILE'
echo '{% if %}' >"$work/broken.jinja"
! chat --message hi --template "$work/broken.jinja" || fail "a broken template was taken"
says "$work/err.txt" 'chat template: line 1, column 7: found .%}., wanted an expression'
status=0; chat --message hi --template "$work/chat.jinja" --arg mood || status=$?
[ $status -eq 2 ] || fail "exit $status for --arg without JSON"
says "$work/err.txt" "found 'mood', wanted key=JSON"

# One message: its answer, its messages and a report.
echo '[{"name": "f"}]' >"$work/tools.json"
chat --message hi --system "Be brief." --template "$work/chat.jinja" --arg 'mood="glad"' --tools "$work/tools.json" --json
python3 - "$work/out.txt" <<'P'
import json, sys
made = json.loads(open(sys.argv[1]).read())
assert [m["role"] for m in made["messages"]] == ["system", "user", "assistant"], made["messages"]
assert made["messages"][2]["content"] == made["answer"]
text = "[system]Be brief.\n[user]hi\nfglad[assistant]"
assert made["report"]["prompt_tokens"] == len(text), (made["report"], len(text))
P

# A prompt that begins the model's reasoning: the answer is within it, and apart from content.
printf '%s' '{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}{% if add_generation_prompt %}[assistant]<think>{% endif %}{# </think> #}' \
  >"$work/thinking.jinja"
chat --message hi --template "$work/thinking.jinja" --json
python3 - "$work/out.txt" <<'P'
import json, sys
made = json.loads(open(sys.argv[1]).read())
assert made["answer"] == "" and made["messages"][1]["reasoning_content"].strip(), made
P
chat --message hi --template "$work/thinking.jinja"
[ -z "$(tr -d '[:space:]' <"$work/out.txt")" ] || { cat "$work/out.txt"; fail "reasoning is on standard output"; }

# A pipe of messages and commands; what was computed is kept, and /reset forgets.
printf 'one\n\n/help\n//two\n/save %s\n/reset\nthree\n/exit\nnever\n' "$work/saved.json" |
  "$tessera" chat "$model" -n 4 --temp 0 --template "$work/chat.jinja" --stats >"$work/out.txt" 2>"$work/err.txt"
says "$work/err.txt" '/reset  +forgets'
[ "$(grep -c '^prompt ' "$work/err.txt")" -eq 3 ] || { cat "$work/err.txt"; fail "wanted three answers"; }
grep '^prompt ' "$work/err.txt" | sed -n 2p | grep -qE ', [1-9][0-9]* of them cached' || fail "the second prompt was computed anew"
python3 - "$work/saved.json" <<'P'
import json, sys
made = json.load(open(sys.argv[1]))
assert [m["role"] for m in made] == ["user", "assistant"] * 2 and made[2]["content"] == "/two", made
P
! printf '/nope\n' | chat --template "$work/chat.jinja" || fail "an unknown command was taken"
says "$work/err.txt" 'found /nope, wanted /reset'

# A context that is full loses the oldest turns, told; /save has all of them, and a cut answer says by which limit.
printf 'first question, a long one indeed\nsecond question, no shorter\nthird question\n/save %s\n' "$work/kept.json" |
  chat --template "$work/chat.jinja" --context 96 --system "Be brief." || fail "a full context ended the conversation"
says "$work/err.txt" 'the context of 96 tokens is full: the oldest [0-9]+ messages are left out'
says "$work/err.txt" 'the answer was cut: --max-tokens 4 is reached'
python3 -c 'import json, sys; roles = [m["role"] for m in json.load(open(sys.argv[1]))]; assert roles == ["system"] + ["user", "assistant"] * 3, roles' "$work/kept.json"
echo "a piped message" | chat --message - --template "$work/chat.jinja" || fail "a piped message was not read"

"$tessera" inspect "$model" | grep -q '^chat template none' || fail "inspect: chat template"
echo "ok: chat"
