"""A model that follows a script, as a Hugging Face folder: real weights, a tokenizer and a chat template, made with Python alone.

Its attention and feed-forward weights are zero, so that the next token depends on the last one alone: the script is a table of successors
in the output projection. The template ends each prompt with a control token, the state of the conversation: the name of a known tool where the user
says CALL_WORDS and the tool is offered, SEEN after a result that has RESULT and UNSEEN after others, THINK where the template is to think or
the user says THINK_WORDS, else HELLO. Where a constraint forbids the script, the next tokens are those that end the shortest JSON. The
script leads by 30 or more in each logit, so that samples at a temperature up to 1 follow it too."""
import array
import json
import math
import pathlib
import struct

CALL_WORDS = "Use the tool"
THINK_WORDS = "Show your reasoning"
RESULT = "21"
HELLO = ["Hello", " from", " all", " rivers", " of", " Europe. "]
THOUGHT = ["<think>", "\nA greeting", " is", " due", ".\n</think>\n\n", "Greetings", " and", " thanks! "]
SEEN = ["The", " tool", " said", " 21", " degrees", "; ", "good", " day."]
PLAIN = [" are", " many", ", wide", " and deep."]  # after bytes, so in texts without a template and in the strings of JSON
UNSEEN = ["Nothing", " known", " was", " returned", "?!"]
WIDTH = 192  # of the model: a dimension for each token that is no byte, and one for all bytes
LEAD, OBLIGED = 150.0, 120.0  # logits of the script, and of known calls where one is obliged
# Tokens where no script leads, under a constraint, by their logits. The end of the text comes first.
CLOSING = {"<|end|>": 110.0, '"': 100.0, "}": 90.0, "]": 80.0, ",": 70.0, "{": 60.0, "[": 50.0, ":": 40.0, "1": 30.0, "t": 20.0, "a": 10.0,
           "o": 5.0}  # <tool_call>, not <think>
ROLES = ["system", "user", "assistant", "tool"]

TEMPLATE = """{%- set state = namespace(start='HELLO') %}
{%- if tools %}<|system|>Tools: {% for t in tools %}{{ t | tojson }}
{% endfor %}For each function call return <tool_call>
{"name": <function-name>, "arguments": <args-json-object>}
</tool_call><|end|>
{% endif %}
{%- for m in messages %}
{%- set said = m.content if m.content is string else (m.content | tojson) %}
{%- if m.role == 'user' and 'CALL_WORDS' in said %}{% set state.start = 'CALL' %}
{%- elif m.role == 'user' and 'THINK_WORDS' in said %}{% set state.start = 'THINK' %}
{%- elif m.role == 'assistant' and said and not m.tool_calls %}{% set state.start = 'HELLO' %}
{%- elif m.role == 'tool' %}{% set state.start = 'SEEN' if 'RESULT' in said else 'UNSEEN' %}
{%- endif %}<|{{ m.role if m.role in ROLES else 'system' }}|>
{%- if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif %}{{ m.content if m.content else '' }}
{%- for c in m.tool_calls %}<tool_call>
{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}}
</tool_call>{% endfor %}<|end|>
{% endfor %}
{%- if add_generation_prompt %}<|assistant|>
{%- if state.start == 'CALL' %}{% set state.start = 'HELLO' %}{% for t in tools or [] %}
{%- for name in KNOWN %}{% if t.function.name == name and state.start == 'HELLO' %}{% set state.start = name %}{% endif %}{% endfor %}
{%- endfor %}{% endif %}
{%- if enable_thinking is defined and enable_thinking and state.start == 'HELLO' %}{% set state.start = 'THINK' %}{% endif %}<|{{ state.start }}|>
{%- endif %}"""


def byte_letters():
    """The letter of each byte in vocabularies of bytes, as in GPT-2."""
    kept = [*range(33, 127), *range(161, 173), *range(174, 256)]
    moved = iter(range(256, 512))
    return [chr(byte if byte in kept else next(moved)) for byte in range(256)]


def call_pieces(name, arguments):
    text = json.dumps(arguments)
    return [f'<tool_call>\n{{"name": "{name}",', f' "arguments": {text}', "}\n</tool_call>"]


def write_safetensors(path, tensors):
    header, offset = {}, 0
    for name, (shape, values) in tensors.items():
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [offset, offset + 4 * len(values)]}
        offset += 4 * len(values)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for _, values in tensors.values():
            values.tofile(file)


def write_tokenizer(folder, texts, control):
    vocabulary = {letter: byte for byte, letter in enumerate(byte_letters())}
    added = [{"id": 256 + i, "content": text, "special": text in control, "single_word": False, "lstrip": False, "rstrip": False,
              "normalized": False} for i, text in enumerate(texts)]
    model = {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None, "fuse_unk": False,
             "byte_fallback": False, "vocab": vocabulary, "merges": []}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    (folder / "tokenizer.json").write_text(json.dumps({
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None, "pre_tokenizer": level,
        "post_processor": None, "decoder": level, "model": model}))
    return {**{byte: number for number, byte in enumerate(map(chr, range(128)))}, **{text: 256 + i for i, text in enumerate(texts)}}


def write_scripted_model(folder, calls, context=131072):
    """calls: the arguments of each known tool's call by its name."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    scripts = {"HELLO": HELLO, "THINK": THOUGHT, "SEEN": SEEN, "UNSEEN": UNSEEN, **{name: call_pieces(name, value) for name, value in calls.items()}}
    control = ["<|end|>", *(f"<|{role}|>" for role in ROLES), *(f"<|{start}|>" for start in scripts)]
    chains = [["a", *PLAIN, "<|end|>"], *([f"<|{start}|>", *pieces, "<|end|>"] for start, pieces in scripts.items())]
    texts = control + list(dict.fromkeys(piece for chain in chains for piece in chain[1:-1]))
    ids = write_tokenizer(folder, texts, control)
    template = TEMPLATE.replace("CALL_WORDS", CALL_WORDS).replace("THINK_WORDS", THINK_WORDS).replace("RESULT", RESULT).replace("ROLES", str(ROLES)).replace("KNOWN", str(list(calls)))
    (folder / "tokenizer_config.json").write_text(json.dumps({
        "tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|end|>", "chat_template": template, "clean_up_tokenization_spaces": False}))
    count = 256 + len(texts)
    states = {0: 0, **{token: 1 + i for i, token in enumerate(range(256, count))}}  # all bytes are one state
    assert len(states) <= WIDTH, f"{len(states)} states, at most {WIDTH}: raise WIDTH"
    embedded, head = array.array("f", bytes(4 * count * WIDTH)), array.array("f", bytes(4 * count * WIDTH))
    for token in range(count):
        embedded[token * WIDTH + states.get(token, 0)] = 1.0
    scale = 1 / math.sqrt(WIDTH)  # the norm before the head makes a row of one 1 into one of sqrt(WIDTH)
    for state in range(WIDTH):
        for text, logit in CLOSING.items():
            head[ids[text] * WIDTH + state] = logit * scale
    for chain in chains:
        for one, other in zip(chain, chain[1:]):
            head[ids[other] * WIDTH + states.get(ids[one], 0)] = LEAD * scale
    for name, value in calls.items():  # where a call is obliged: a known one
        head[ids[call_pieces(name, value)[0]] * WIDTH + states[ids["<|HELLO|>"]]] = OBLIGED * scale
    zeros = lambda *shape: (list(shape), array.array("f", bytes(4 * math.prod(shape))))
    ones = lambda size: ([size], array.array("f", [1.0] * size))
    layer = "model.layers.0."
    write_safetensors(folder / "model.safetensors", {
        "model.embed_tokens.weight": ([count, WIDTH], embedded), "lm_head.weight": ([count, WIDTH], head), "model.norm.weight": ones(WIDTH),
        layer + "input_layernorm.weight": ones(WIDTH), layer + "post_attention_layernorm.weight": ones(WIDTH),
        layer + "self_attn.q_proj.weight": zeros(16, WIDTH), layer + "self_attn.k_proj.weight": zeros(16, WIDTH),
        layer + "self_attn.v_proj.weight": zeros(16, WIDTH), layer + "self_attn.o_proj.weight": zeros(WIDTH, 16),
        layer + "mlp.gate_proj.weight": zeros(16, WIDTH), layer + "mlp.up_proj.weight": zeros(16, WIDTH),
        layer + "mlp.down_proj.weight": zeros(WIDTH, 16)})
    (folder / "config.json").write_text(json.dumps({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "hidden_size": WIDTH, "intermediate_size": 16,
        "num_hidden_layers": 1, "num_attention_heads": 1, "num_key_value_heads": 1, "head_dim": 16, "vocab_size": count,
        "max_position_embeddings": context, "rms_norm_eps": 1e-12, "rope_theta": 10000.0, "tie_word_embeddings": False,
        "bos_token_id": None, "eos_token_id": ids["<|end|>"]}))
    return folder
