"""Small stand-ins for the files that examples read, made under their names when an example first names them."""
import json
import re
import shutil
import struct
import subprocess

INPUT = "Hello\n/exit\n"  # standard input of every example: of chats

_LLAMA = "llama:L=2,C=32,H=2,KV=1,F=48,V=256,T=4096"
_CHATML = ("{% for m in messages %}{{ '<' + m.role + '>' + m.content + '<end>' }}{% endfor %}"
           "{% if add_generation_prompt %}{{ '<assistant>' }}{% endif %}")
_SENTENCES = "".join(f"The {a} {b} went to the river and saw {c} boats.\n"
                     for a in ("old", "young", "tired", "happy") for b in ("man", "woman", "dog") for c in range(2, 40))


def _rows(rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


TEXTS = {
    "text.txt": _SENTENCES,
    "notes.txt": _SENTENCES,
    "lines.txt": "A text.\nAnother text.\n",
    "answers.txt": "Yes.\nNo, not at all.\n",
    "pairs.tsv": "How many?\tSeven.\nWhere?\tHere.\n",
    "chats.jsonl": _rows({"messages": [{"role": "user", "content": f"How many are {i}?"}, {"role": "assistant", "content": f"{i}."}]}
                         for i in range(24)),
    "pairs.jsonl": _rows({"prompt": f"Is {i} odd?", "chosen": " Yes.", "rejected": " I do not know."} for i in range(24)),
    "labelled.jsonl": _rows({"prompt": f"Is {i} odd?", "completion": " Yes.", "label": i % 2 == 0} for i in range(24)),
    "requests.jsonl": _rows([{"id": "a", "prompt": "Once"}, {"prompt": "Then", "max_tokens": 4}]),
    "tools.json": json.dumps([{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}]),
    "person.json": json.dumps({"type": "object", "properties": {"age": {"type": "integer", "minimum": 0, "maximum": 99}}, "required": ["age"]}),
    "chat_template.jinja": _CHATML,
}

# Files of models, or what stands for a folder of one: the content is what counts.
MODELS = {
    "model.tsr": _LLAMA, "model.gguf": _LLAMA, "model-f16.gguf": _LLAMA, "stories260K.gguf": _LLAMA, "stories.tsr": _LLAMA,
    "small.tsr": _LLAMA, "tuned.tsr": _LLAMA, "base.gguf": _LLAMA, "base.tsr": _LLAMA, "llama.gguf": _LLAMA, "MODEL": _LLAMA,
    "SmolLM2-135M-Instruct.Q4_1.gguf": _LLAMA, "base-folder": _LLAMA, "folder": _LLAMA, "bitsandbytes-folder": _LLAMA,
    "nomic-embed.gguf": "nomic-bert:L=1,C=32,H=2,F=48,V=256,T=128,mlm=0",
    "all-MiniLM-L6-v2": "bert:L=1,C=32,H=2,F=48,V=256,T=128,mlm=0",
    "embeddinggemma-300m": "gemma3:L=2,C=32,H=2,KV=1,D=16,F=48,V=256,T=128,window=9,tied,rope_half,causal=0,head=0,dense=64|32",
    "sentiment-model": "bert:L=1,C=32,H=2,F=48,V=256,T=128,N=2",
    "cross-encoder": "bert:L=1,C=32,H=2,F=48,V=256,T=128,N=1",
}
FOLDERS = {"base-folder", "folder", "bitsandbytes-folder"}
ADAPTERS = {"peft-folder", "adapters/french", "adapters/german"}
_OUTPUTS = re.compile(r"(?:-o|--out|--metrics|--tensorboard|--report|--save)[ =](\S+)")


def _with_template(gguf):
    """The file with a chat template as its first key, of so many bytes that the tensors stay aligned."""
    key = b"tokenizer.chat_template"
    text = _CHATML.encode()
    text += b" " * (-(8 + len(key) + 4 + 8 + len(text)) % 32)
    entry = struct.pack("<Q", len(key)) + key + struct.pack("<IQ", 8, len(text)) + text
    tensors, keys = struct.unpack_from("<QQ", gguf, 8)
    return gguf[:8] + struct.pack("<QQ", tensors, keys + 1) + entry + gguf[24:]


def _make(name, folder, tessera):
    def run(*words):
        process = subprocess.run([tessera, *words], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        assert process.returncode == 0, f"stand-in {name}: tessera {' '.join(words)}: {process.stdout.strip()[-300:]}"

    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    if name in TEXTS:
        path.write_text(TEXTS[name])
    elif name == "adapted.tsr":
        _provide("model.tsr", folder, tessera)
        run("adapt", "model.tsr", "--lora", "8", "-o", name)
    elif name in ADAPTERS:
        _provide("model.tsr", folder, tessera)
        run("adapt", "model.tsr", "--lora", "8", "-o", name + ".tsr")
        run("export", name + ".tsr", "--format", "peft", "-o", name)
    elif name == "imatrix.gguf":
        _provide("model.gguf", folder, tessera)
        _provide("text.txt", folder, tessera)
        run("imatrix", "model.gguf", "--file", "text.txt", "--seq", "64", "-o", name)
    elif name == "seed.gguf":  # a model with a chat template, of which others are made
        run("new", _LLAMA, "--tokenizer", "bytes", "-o", "seed.tsr")
        run("export", "seed.tsr", "--format", "gguf", "-o", name)
        path.write_bytes(_with_template(path.read_bytes()))
    elif MODELS.get(name) == _LLAMA:
        _provide("seed.gguf", folder, tessera)
        if name.endswith(".gguf"):
            shutil.copy(folder / "seed.gguf", path)
        else:
            run(*(("export",) if name in FOLDERS else ("import",)), "seed.gguf", "-o", name)
    elif name.endswith(".gguf"):
        run("new", MODELS[name], "--tokenizer", "bytes", "-o", name + ".tsr")
        run("export", name + ".tsr", "--format", "gguf", "-o", name)
    else:
        run("new", MODELS[name], "--tokenizer", "bytes", "-o", name)


def _provide(name, folder, tessera):
    if not (folder / name).exists():
        _make(name, folder, tessera)


def provide(command, folder, tessera):
    """Makes what the command reads and is not there: names of the tables above among its words, except those that it writes."""
    command = re.split(r"\s#", command)[0]
    written = set(_OUTPUTS.findall(command))
    # What it writes may be what it reads too, as by --resume.
    read = set(re.findall(r"(?:--resume|--reference|--adapter) (?:\w+=)?(\S+)", command))
    known = [*TEXTS, *MODELS, *ADAPTERS, "adapted.tsr", "imatrix.gguf"]
    for word in re.split(r"[\s=,@]+", command.replace("'", " ").replace('"', " ")):
        name = word.rstrip("/")
        if "folder/" in word and name not in known:
            name = "folder"
        if name in known and (name not in written or name in read):
            _provide(name, folder, tessera)
