"""Tokenizers of the library `tokenizers`, made: from the vocabularies of GGUF files, as their families publish them, and a small
one for each normalizer, pre-tokenizer, model, post-processor and decoder. For tokenizers_check.py."""
import base64
import json
import struct


# ---- of GGUF files

def gguf_fields(path):
    """tokens, scores, types, merges of a GGUF vocabulary."""
    data, at = path.read_bytes(), 24
    keys = struct.unpack_from("<Q", data, 16)[0]
    sizes = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "B", 10: "Q", 11: "q", 12: "d"}
    found = {}

    def text():
        nonlocal at
        size = struct.unpack_from("<Q", data, at)[0]
        at += 8 + size
        return data[at - size:at].decode("utf-8", "replace")

    def value(kind):
        nonlocal at
        if kind == 8:
            return text()
        if kind == 9:
            item, count = struct.unpack_from("<IQ", data, at)
            at += 12
            return [value(item) for _ in range(count)]
        code = "<" + sizes[kind]
        at += struct.calcsize(code)
        return struct.unpack_from(code, data, at - struct.calcsize(code))[0]

    for _ in range(keys):
        key = text()
        kind = struct.unpack_from("<I", data, at)[0]
        at += 4
        found[key] = value(kind)
    return found


LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")


def byte_level_json(path, family):
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
    fields = gguf_fields(path)
    tokens, types = fields["tokenizer.ggml.tokens"], fields["tokenizer.ggml.token_type"]
    merges = [tuple(m.split(" ", 1)) if m[0] != " " else (" ", m[2:]) for m in fields["tokenizer.ggml.merges"]]
    vocab = {token: i for i, token in enumerate(tokens)}
    merges = [m for m in merges if m[0] in vocab and m[1] in vocab and m[0] + m[1] in vocab]
    made = Tokenizer(models.BPE(vocab=vocab, merges=merges, ignore_merges=family == "llama-bpe"))
    split = lambda pattern: pre_tokenizers.Split(Regex(pattern), "isolated")
    plain = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    gpt2 = pre_tokenizers.ByteLevel(add_prefix_space=False)
    steps = {"gpt-2": [gpt2], "mpt": [gpt2], "gpt-neox": [gpt2],
             "llama-bpe": [split(LLAMA3), plain], "qwen2": [split(LLAMA3.replace("{1,3}", "")), plain],
             "starcoder": [pre_tokenizers.Digits(True), gpt2], "refact": [pre_tokenizers.Digits(True), gpt2],
             "command-r": [pre_tokenizers.Digits(True), gpt2],
             "falcon": [pre_tokenizers.Punctuation("contiguous"), gpt2, pre_tokenizers.Digits(False),
                        split("[0-9][0-9][0-9]")],
             "deepseek-coder": [split("[\r\n]"), split(r"\s?\p{L}+"), split(r"\s?\p{P}+"),
                                split("[一-龥ࠀ-一가-퟿]+"), pre_tokenizers.Digits(True), plain],
             "deepseek-llm": [split("[\r\n]"), split(r"\s?\p{L}+"), split(r"\s?\p{P}+"), split("[一-龥ࠀ-一가-퟿]+"),
                              pre_tokenizers.Digits(False), plain]}[family]
    made.pre_tokenizer = pre_tokenizers.Sequence(steps)
    made.decoder = decoders.ByteLevel()
    if family in ("qwen2", "command-r", "mpt", "gpt-neox"):
        made.normalizer = normalizers.NFC()
    made.add_special_tokens([AddedToken(t, special=True, normalized=False) for t, k in zip(tokens, types) if k == 3])
    made.add_tokens([AddedToken(t, normalized=False) for t, k in zip(tokens, types) if k == 4])
    return made


def llama2_json(path):
    from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers
    fields = gguf_fields(path)
    tokens, scores = fields["tokenizer.ggml.tokens"], fields["tokenizer.ggml.scores"]
    types = fields["tokenizer.ggml.token_type"]
    vocab, merges = {token: i for i, token in enumerate(tokens)}, []
    for token, score, kind in zip(tokens, scores, types):
        if kind != 1:
            continue
        local = [(token[:i], token[i:]) for i in range(1, len(token)) if token[:i] in vocab and token[i:] in vocab]
        merges += [(-score, vocab[a], vocab[b], a, b) for a, b in local]
    merges = [(a, b) for *_, a, b in sorted(merges, key=lambda m: m[:3])]
    made = Tokenizer(models.BPE(vocab=vocab, merges=merges, byte_fallback=True, fuse_unk=True, unk_token="<unk>"))
    made.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    made.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
                                      decoders.Strip(" ", 1, 0)])
    made.add_special_tokens([AddedToken(t, special=True, normalized=False) for t, k in zip(tokens, types) if k in (2, 3)])
    return made


def bert_json(path):
    from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers
    fields = gguf_fields(path)
    tokens = [t[1:] if t[0] == "▁" else t if k == 3 else "##" + t
              for t, k in zip(fields["tokenizer.ggml.tokens"], fields["tokenizer.ggml.token_type"])]
    made = Tokenizer(models.WordPiece({t: i for i, t in enumerate(tokens)}, unk_token="[UNK]"))
    made.normalizer, made.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    made.add_special_tokens([AddedToken(t, special=True, normalized=False)
                             for t, k in zip(tokens, fields["tokenizer.ggml.token_type"]) if k == 3])
    return made


def unigram_json(path):
    from tokenizers import AddedToken, Tokenizer
    fields = gguf_fields(path)
    tokens, types = fields["tokenizer.ggml.tokens"], fields["tokenizer.ggml.token_type"]
    charsmap = base64.b64encode(bytes(v & 255 for v in fields["tokenizer.ggml.precompiled_charsmap"])).decode()
    metaspace = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}
    made = Tokenizer.from_str(json.dumps({
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "post_processor": None,
        "normalizer": {"type": "Sequence", "normalizers": [
            {"type": "Precompiled", "precompiled_charsmap": charsmap},
            {"type": "Replace", "pattern": {"Regex": "\\A +| +\\z"}, "content": ""},
            {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}]},
        "pre_tokenizer": metaspace, "decoder": metaspace,
        "model": {"type": "Unigram", "unk_id": fields["tokenizer.ggml.unknown_token_id"],
                  "vocab": list(zip(tokens, fields["tokenizer.ggml.scores"]))}}))
    made.add_special_tokens([AddedToken(t, special=True, normalized=False, lstrip=t == "<mask>")
                             for t, k in zip(tokens, types) if k in (2, 3)])
    return made


# ---- of each part

def part_tokenizers(text):
    """name -> a small tokenizer that has this part, trained on lines of text."""
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False)

    def trained(model, trainer, normalizer=None, splitter=None, decoder=None):
        made = Tokenizer(model)
        if normalizer:
            made.normalizer = normalizer
        if splitter:
            made.pre_tokenizer = splitter
        if decoder:
            made.decoder = decoder
        made.train_from_iterator(text, trainer)
        return made

    bpe = lambda **a: trainers.BpeTrainer(vocab_size=3000, show_progress=False, special_tokens=["<unk>", "<s>"], **a)
    byte_alphabet = pre_tokenizers.ByteLevel.alphabet()
    base = trained(models.BPE(), bpe(initial_alphabet=byte_alphabet), None, byte_level, decoders.ByteLevel())
    spec = json.loads(base.to_str())

    def changed(**members):
        other = json.loads(json.dumps(spec))
        other.update(members)
        return Tokenizer.from_str(json.dumps(other))

    N, P, D = normalizers, pre_tokenizers, decoders
    for normalizer in (N.NFC(), N.NFD(), N.NFKC(), N.NFKD(), N.Lowercase(), N.Strip(), N.Strip(left=False), N.StripAccents(),
                       N.Sequence([N.NFD(), N.StripAccents()]), N.BertNormalizer(), N.BertNormalizer(False, False, False, False),
                       N.BertNormalizer(True, True, None, False), N.Replace("a", "bb"), N.Replace(Regex(r"\s+"), " "),
                       N.Replace(Regex("[A-Z&&[^AEIOU]]"), "C"), N.Prepend("▁"), N.Nmt(), N.Sequence([])):
        yield f"normalizer {type(normalizer).__name__}", changed(normalizer=json.loads(normalizer.__getstate__()))
    yield "normalizer ByteLevel", changed(normalizer={"type": "ByteLevel"}, pre_tokenizer=None)
    for splitter in (P.ByteLevel(True), P.ByteLevel(True, use_regex=False), P.ByteLevel(False, use_regex=False),
                     P.Metaspace(), P.Metaspace(prepend_scheme="never"), P.Metaspace(prepend_scheme="first"),
                     P.Metaspace(split=False), P.Metaspace(replacement="_"), P.Digits(), P.Digits(True), P.Punctuation(),
                     P.Whitespace(), P.WhitespaceSplit(), P.BertPreTokenizer(), P.CharDelimiterSplit("a"), P.UnicodeScripts(),
                     P.FixedLength(3), P.Sequence([P.Whitespace(), P.Digits(True), P.Metaspace(prepend_scheme="first")]),
                     P.Sequence([P.Split(Regex(r"\d+"), "isolated"), P.ByteLevel(False, use_regex=False), P.Split("Ġ", "removed")]),
                     P.Split(Regex(r"\w+|[^\w\s]+"), "removed", invert=True), P.Split(Regex(r"(?=(\d{3})+(?!\d))"), "isolated"),
                     P.Split(Regex(r"\b"), "isolated"), P.Split(Regex(r"\h+"), "isolated"), P.Split(Regex(r"(?m:.)\p{^L}"), "isolated"),
                     P.Split(Regex(r"[^\S\r\n]+|[[:alpha:]]+"), "isolated"), P.Split(Regex(r"^.|.$"), "isolated")):
        yield f"pre_tokenizer {type(splitter).__name__}", changed(pre_tokenizer=json.loads(splitter.__getstate__()))
    for behavior in ("removed", "isolated", "merged_with_previous", "merged_with_next", "contiguous"):
        for invert in (False, True):
            for pattern in (Regex("[a-e ]"), " "):
                made = P.Split(pattern, behavior, invert=invert)
                yield f"Split {behavior} {invert} {type(pattern).__name__}", changed(pre_tokenizer=json.loads(made.__getstate__()))
        yield f"Punctuation {behavior}", changed(pre_tokenizer=json.loads(P.Punctuation(behavior).__getstate__()))
    for decoder in (D.ByteLevel(), D.Metaspace(), D.Metaspace(prepend_scheme="never"), D.WordPiece(), D.WordPiece(cleanup=False),
                    D.WordPiece(prefix="Ġ"), D.BPEDecoder(), D.BPEDecoder("e"), D.Fuse(), D.Replace("e", "xyz"),
                    D.Replace(Regex("[a-c]"), ""), D.Strip("Ġ", 1, 0), D.Strip("e", 0, 1), D.CTC(), D.CTC("e", "Ġ", True), D.CTC("e", "Ġ", False),
                    D.Sequence([D.ByteLevel(), D.Fuse(), D.Strip(" ", 2, 3)]), D.Sequence([D.Fuse(), D.Replace("ee", "E"),
                    D.Strip("Ġ", 1, 2)])):
        yield f"decoder {type(decoder).__name__}", changed(decoder=json.loads(decoder.__getstate__()))
    yield "decoder none", changed(decoder=None)
    # Models.
    words = P.Whitespace()
    yield "BPE unk", trained(models.BPE(unk_token="<unk>"), bpe(limit_alphabet=80), None, words)
    yield "BPE fuse_unk", trained(models.BPE(unk_token="<unk>", fuse_unk=True), bpe(limit_alphabet=80), None, words)
    yield "BPE no unk", trained(models.BPE(), bpe(limit_alphabet=80), None, words)
    yield "BPE suffix", trained(models.BPE(unk_token="<unk>", end_of_word_suffix="</w>"), bpe(end_of_word_suffix="</w>"), None,
                                words, D.BPEDecoder())
    yield "BPE prefix", trained(models.BPE(unk_token="<unk>", continuing_subword_prefix="##"),
                                bpe(continuing_subword_prefix="##"), None, words, D.WordPiece())
    fallback = trained(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True),
                       trainers.BpeTrainer(vocab_size=2000, show_progress=False, limit_alphabet=60,
                                           special_tokens=["<unk>", "<s>"] + [f"<0x{i:02X}>" for i in range(256)]),
                       N.Replace(" ", "▁"), None, D.Sequence([D.Replace("▁", " "), D.ByteFallback(), D.Fuse()]))
    plain = json.loads(fallback.to_str())
    plain["added_tokens"] = plain["added_tokens"][:2]
    yield "BPE byte_fallback", Tokenizer.from_str(json.dumps(plain))
    del plain["model"]["vocab"]["<0x80>"]
    plain["model"]["vocab"]["spare"] = fallback.token_to_id("<0x80>")
    yield "BPE byte_fallback with holes", Tokenizer.from_str(json.dumps(plain))
    ignoring = json.loads(base.to_str())
    ignoring["model"]["ignore_merges"] = True
    yield "BPE ignore_merges", Tokenizer.from_str(json.dumps(ignoring))
    wordpiece = trained(models.WordPiece(unk_token="[UNK]"), trainers.WordPieceTrainer(vocab_size=2000, show_progress=False,
                        special_tokens=["[UNK]", "[CLS]", "[SEP]", "[MASK]"]), N.BertNormalizer(), P.BertPreTokenizer(), D.WordPiece())
    yield "WordPiece", wordpiece
    short = json.loads(wordpiece.to_str())
    short["model"]["max_input_chars_per_word"] = 4
    yield "WordPiece short", Tokenizer.from_str(json.dumps(short))
    yield "WordLevel", trained(models.WordLevel(unk_token="<unk>"), trainers.WordLevelTrainer(vocab_size=2000, show_progress=False,
                               special_tokens=["<unk>"]), None, P.WhitespaceSplit())
    unigram = trained(models.Unigram(), trainers.UnigramTrainer(vocab_size=2500, show_progress=False, unk_token="<unk>",
                      special_tokens=["<unk>", "</s>"]), N.NFKC(), P.Metaspace(), D.Metaspace())
    yield "Unigram", unigram
    yield "Unigram whole text", trained(models.Unigram(), trainers.UnigramTrainer(vocab_size=2500, show_progress=False,
                                        unk_token="<unk>", special_tokens=["<unk>"]), N.Replace(" ", "▁"), None, None)
    spelt = json.loads(unigram.to_str())
    spelt["model"]["byte_fallback"] = True
    spelt["model"]["vocab"] += [[f"<0x{i:02X}>", -20.0] for i in range(256)]
    spelt["decoder"] = {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, spelt["decoder"]]}
    yield "Unigram byte_fallback", Tokenizer.from_str(json.dumps(spelt))
    charsmap = precompiled({"ﬁ": "fi", "①": "1", "é": "e", "e\u0301": "E", "\u3000": " ", "👩‍👩‍👧": "F", "カ": "ka", "\t": " "})
    mapped = json.loads(unigram.to_str())
    mapped["normalizer"] = {"type": "Sequence", "normalizers": [{"type": "Precompiled", "precompiled_charsmap": charsmap},
                            {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}]}
    yield "Precompiled", Tokenizer.from_str(json.dumps(mapped))
    # Added tokens.
    for flags in ({"single_word": True}, {"lstrip": True}, {"rstrip": True}, {"lstrip": True, "rstrip": True, "single_word": True}):
        for normalized in (False, True):
            made = changed(normalizer=json.loads(N.Sequence([N.NFKC(), N.Lowercase()]).__getstate__()))
            made.add_tokens([AddedToken(t, normalized=normalized, **flags) for t in ("hello", "Hello World", "ab", "abc", "Ⅳ")])
            made.add_special_tokens([AddedToken(t, normalized=normalized, special=True, **flags) for t in ("<tool>", "[MASK]", "</s>")])
            yield f"added {flags} normalized {normalized}", made
    post = changed()
    post.post_processor = processors.TemplateProcessing("<s> $A <s>", None, [("<s>", 1)])
    yield "post_processor", post


def precompiled(table):
    """A SentencePiece charsmap (base64) of a table: a double array over UTF-8, and replacements."""
    keys = {k.encode() + b"\0": v for k, v in table.items()}
    pool, places = b"", {}
    for key, value in keys.items():
        places[key] = len(pool)
        pool += value.encode() + b"\0"
    units, used = {0: 0}, {0}

    def place(prefix, at):
        children = sorted({key[len(prefix)] for key in keys if key.startswith(prefix) and len(key) > len(prefix)})
        base = next(b for b in range(at ^ 256, 1 << 20, 1)
                    if not any((b ^ c) in used for c in children) and ((b ^ at) < 1 << 21 or (b ^ at) & 0xff == 0))
        offset = base ^ at
        units[at] |= (offset << 10 if offset < 1 << 21 else (offset >> 8) << 10 | 1 << 9) | (256 if 0 in children else 0)
        for c in children:
            used.add(base ^ c)
        for c in children:
            key = prefix + bytes([c])
            if c == 0:
                units[base ^ c] = 1 << 31 | places[key]
            else:
                units[base ^ c] = c
                place(key, base ^ c)

    place(b"", 0)
    size = max(units) + 257
    data = struct.pack("<" + "I" * size, *(units.get(i, 0) for i in range(size)))
    return base64.b64encode(struct.pack("<I", len(data)) + data + pool).decode()


# ---- of SentencePiece

def drawn_sentencepiece_options(draw):
    """Options of its trainer: those that change what a model does, each at random."""
    def some(*values):
        return draw.choice(values)
    options = {"model_type": some("unigram", "unigram", "bpe", "bpe", "word", "char")}
    chances = {"byte_fallback": 0.5, "add_dummy_prefix": 0.3, "remove_extra_whitespaces": 0.5, "treat_whitespace_as_suffix": 0.15,
               "split_by_whitespace": 0.2, "split_by_unicode_script": 0.3, "split_by_number": 0.3, "split_digits": 0.3,
               "allow_whitespace_only_pieces": 0.4, "escape_whitespaces": 0.15, "use_all_vocab": 0.1}
    defaults = {"add_dummy_prefix": True, "remove_extra_whitespaces": True, "split_by_whitespace": True,
                "split_by_unicode_script": True, "split_by_number": True, "escape_whitespaces": True}
    for name, chance in chances.items():
        if draw.random() < chance:
            options[name] = not defaults.get(name, False)
    if draw.random() < 0.7:
        options["normalization_rule_name"] = some("identity", "nmt_nfkc", "nfkc", "nmt_nfkc_cf", "nfkc_cf")
    else:
        options["normalization_rule_tsv"] = "RULES"
    if draw.random() < 0.15:
        options["denormalization_rule_tsv"] = "RULES"
    if draw.random() < 0.5:
        symbols = ["▁▁", "▁▁▁▁", "<ud>", "th", "the", "▁a", "\t", "xy▁z", "é"]
        options["user_defined_symbols"] = draw.sample(symbols, draw.randint(1, 4))
    if draw.random() < 0.3:
        options["control_symbols"] = draw.sample(["<c>", "Q", "▁the", "[MASK]"], draw.randint(1, 2))
    if draw.random() < 0.2:
        options["unk_surface"] = some("??", "▁", "")
    if draw.random() < 0.2:
        options["unk_piece"], options["bos_piece"] = "[UNK]", "[BOS]"
    if draw.random() < 0.2:
        options["unk_id"], options["bos_id"], options["eos_id"], options["pad_id"] = some((3, 1, 2, 0), (0, -1, 1, -1), (2, -1, -1, 0))
    if draw.random() < 0.2:
        options["required_chars"] = "äöü中"
    options["character_coverage"] = some(0.98, 0.9995, 1.0)
    options["max_sentencepiece_length"] = some(4, 16)
    options["vocab_size"] = some(420, 600, 900)
    return options


def train_sentencepiece(folder, options):
    """folder/tokenizer.model of these options, opened by the library."""
    import pathlib
    import sentencepiece
    root = pathlib.Path(__file__).resolve().parents[2]
    lines = [l for p in sorted(root.glob("docs/**/*.md"))[:6] for l in p.read_text("utf-8", "replace").split("\n")][:1500]
    lines += ["two  spaces    four", "é e\u0301 ﬁ ① ä中文 x\ty", "the the th e a b c 12 345", "日本語 カタカナ 한국어", "Ԥ 🙂"] * 3
    (folder / "lines.txt").write_text("\n".join(lines))
    (folder / "rules.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in (("61 62", "78"), ("E9", "65"), ("61", "61 20"), ("2E", ""))))
    given = {k: str(folder / "rules.tsv") if v == "RULES" else v for k, v in options.items()}
    sentencepiece.SentencePieceTrainer.train(input=str(folder / "lines.txt"), model_prefix=str(folder / "tokenizer"), minloglevel=9,
                                             hard_vocab_limit=False, num_threads=1, **given)
    return sentencepiece.SentencePieceProcessor(model_file=str(folder / "tokenizer.model"))


def write_sentencepiece_gguf(path, to):
    """The vocabulary as converters write it; False where the format has no word for what the model does."""
    import gguf
    from sentencepiece import sentencepiece_model_pb2 as proto
    model = proto.ModelProto.FromString(path.read_bytes())
    normalizer, trainer = model.normalizer_spec, model.trainer_spec
    is_unigram = trainer.model_type == 1
    default_surface = trainer.unk_surface == " \u2047 "
    user_defined = any(p.type == 4 for p in model.pieces)
    if trainer.treat_whitespace_as_suffix or not normalizer.escape_whitespaces or model.denormalizer_spec.precompiled_charsmap:
        return False
    if is_unigram:
        if not default_surface:
            return False
    elif trainer.model_type != 2 or normalizer.precompiled_charsmap or normalizer.remove_extra_whitespaces or user_defined \
            or not trainer.byte_fallback:
        return False
    writer = gguf.GGUFWriter(to, "llama")
    writer.add_tokenizer_model("t5" if is_unigram else "llama")
    writer.add_token_list([p.piece.encode() for p in model.pieces])
    writer.add_token_scores([p.score for p in model.pieces])
    writer.add_token_types([p.type for p in model.pieces])
    for name, value in (("unknown", trainer.unk_id), ("bos", trainer.bos_id), ("eos", trainer.eos_id)):
        writer.add_uint32(f"tokenizer.ggml.{name}_token_id", value if value >= 0 else 0xffffffff)
    writer.add_add_space_prefix(normalizer.add_dummy_prefix)
    if is_unigram:
        writer.add_remove_extra_whitespaces(normalizer.remove_extra_whitespaces)
        if normalizer.precompiled_charsmap:
            writer.add_precompiled_charsmap(normalizer.precompiled_charsmap)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return True
