#include "serialize/export/sentencepiece_file.h"

#include <algorithm>
#include <cstring>

#include "graph/base/text.h"
#include "text/tokenizer/sentencepiece_settings.h"

namespace tessera {
namespace {

Status unsupported(std::string message) { return Status(StatusCode::kUnsupported, std::move(message)); }

// Message: a protocol buffer message; fields are numbered as in sentencepiece_model.proto.
class Message {
 public:
  void number(uint32_t field, uint64_t value) {
    varint(field << 3);
    varint(value);
  }
  void flag(uint32_t field, bool value) { number(field, value ? 1 : 0); }
  void real(uint32_t field, float value) {
    varint(field << 3 | 5);
    char raw[sizeof value];
    std::memcpy(raw, &value, sizeof value);
    bytes_.append(raw, sizeof value);
  }
  void bytes(uint32_t field, std::string_view value) {
    varint(field << 3 | 2);
    varint(value.size());
    bytes_ += value;
  }
  const std::string& text() const { return bytes_; }

 private:
  void varint(uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_ += static_cast<char>(value | 0x80);
    bytes_ += static_cast<char>(value);
  }
  std::string bytes_;
};

size_t piece_count(const TokenizerData& data, const SentencePieceSettings& settings) {
  return settings.pieces > 0 ? std::min(data.tokens.size(), static_cast<size_t>(settings.pieces))
                             : data.tokens.size();
}

}  // namespace

Result<std::string> write_sentencepiece_file(const TokenizerData& data) {
  TSR_ASSIGN_OR_RETURN(const SentencePieceSettings settings, read_sentencepiece_settings(data.pipeline));
  const size_t pieces = piece_count(data, settings);
  Message file;
  for (size_t id = 0; id < pieces; ++id) {
    Message piece;
    piece.bytes(1, data.tokens[id]);
    piece.real(2, data.scores[id]);
    piece.number(3, static_cast<uint64_t>(data.types[id]));
    file.bytes(1, piece.text());
  }
  Message trainer;
  trainer.number(3, static_cast<uint64_t>(settings.algorithm));
  trainer.flag(24, settings.treat_whitespace_as_suffix);
  trainer.flag(35, settings.byte_fallback);
  const auto inside = [&](int32_t id) { return static_cast<size_t>(id) < pieces ? id : -1; };
  const std::pair<uint32_t, int32_t> ids[] = {
      {40, data.unknown}, {41, inside(data.bos)}, {42, inside(data.eos)}, {43, inside(data.pad)}};
  for (const auto& [field, id] : ids)
    trainer.number(field, static_cast<uint64_t>(static_cast<int64_t>(id)));
  trainer.bytes(44, settings.unknown_surface);
  const std::tuple<uint32_t, uint32_t, int32_t> texts[] = {
      {45, 40, data.unknown}, {46, 41, inside(data.bos)}, {47, 42, inside(data.eos)}, {48, 43, inside(data.pad)}};
  for (const auto& [field, owner, id] : texts)
    if (id >= 0) trainer.bytes(field, data.tokens[static_cast<size_t>(id)]);
  file.bytes(2, trainer.text());
  Message normalizer;
  normalizer.bytes(1, settings.charsmap.empty() ? "identity" : "user_defined");
  if (!settings.charsmap.empty()) normalizer.bytes(2, settings.charsmap);
  normalizer.flag(3, settings.add_dummy_prefix);
  normalizer.flag(4, settings.remove_extra_whitespaces);
  normalizer.flag(5, settings.escape_whitespaces);
  file.bytes(3, normalizer.text());
  if (!settings.denormalizer_charsmap.empty()) {
    Message denormalizer;
    denormalizer.bytes(2, settings.denormalizer_charsmap);
    denormalizer.flag(3, false);
    denormalizer.flag(4, false);
    denormalizer.flag(5, false);
    file.bytes(5, denormalizer.text());
  }
  return file.text();
}

Result<Json> sentencepiece_side_file(const TokenizerData& data) {
  TSR_ASSIGN_OR_RETURN(const SentencePieceSettings settings, read_sentencepiece_settings(data.pipeline));
  const size_t pieces = piece_count(data, settings);
  const bool adds_bos = settings.algorithm == SentencePieceAlgorithm::kBpe && data.bos >= 0;
  if (settings.pieces == 0 && data.add_bos == adds_bos && !data.add_eos) return Json::object();
  // Settings of a tokenizer class, which need side files.
  const bool llama = settings.prefix_unless_space && settings.dummy_prefix == DummyPrefix::kEachPart;
  Json config = {{"tokenizer_class", llama ? "LlamaTokenizer" : "PreTrainedTokenizerFast"},
                 {"legacy", settings.dummy_prefix == DummyPrefix::kEachPart},
                 {"add_bos_token", data.add_bos},
                 {"add_eos_token", data.add_eos},
                 {"clean_up_tokenization_spaces", false}};
  const std::pair<const char*, int32_t> names[] = {
      {"bos_token", data.bos}, {"eos_token", data.eos}, {"pad_token", data.pad}};
  for (const auto& [name, id] : names)  // the file names those among its pieces
    if (id >= 0 && static_cast<size_t>(id) >= pieces) config[name] = data.tokens[static_cast<size_t>(id)];
  Json& added = config["added_tokens_decoder"] = Json::object();
  for (const AddedToken& token : settings.added)
    added[std::to_string(token.id)] = {{"content", token.content},         {"single_word", token.single_word},
                                       {"lstrip", token.lstrip},           {"rstrip", token.rstrip},
                                       {"normalized", token.normalized}, {"special", token.special}};
  for (size_t id = pieces; id < data.tokens.size(); ++id)
    if (data.types[id] != TokenType::kUnused && !added.contains(std::to_string(id)))
      return unsupported(format("its token {} is neither a piece nor an added token", static_cast<int64_t>(id)));
  return config;
}

Result<TokenizerData> gguf_sentencepiece(const TokenizerData& data) {
  TSR_ASSIGN_OR_RETURN(const SentencePieceSettings settings, read_sentencepiece_settings(data.pipeline));
  const bool unigram = settings.algorithm == SentencePieceAlgorithm::kUnigram;
  const auto refused = [](std::string_view what) {
    return unsupported(format("the tokenizer.model {}, which GGUF files have no word for; leave the tokenizer out "
                              "(--no-tokenizer, option tokenizer = 0) to run the model by token ids",
                              what));
  };
  if (!unigram && settings.algorithm != SentencePieceAlgorithm::kBpe)
    return refused("is of words or characters");
  if (settings.treat_whitespace_as_suffix) return refused("has spaces behind words");
  if (!settings.escape_whitespaces) return refused("does not write spaces as ▁");
  if (!settings.denormalizer_charsmap.empty()) return refused("has a denormalizer");
  if (settings.add_dummy_prefix &&
      (settings.dummy_prefix == DummyPrefix::kFirstPart || settings.prefix_unless_space))
    return refused("has a dummy prefix at the beginning of texts only, or only before text without a space");
  if (!unigram && (!settings.charsmap.empty() || settings.remove_extra_whitespaces))
    return refused("is BPE with a normalizer");
  // Readers add the prefix after each of them.
  const auto pieces = data.types.begin() + static_cast<ptrdiff_t>(piece_count(data, settings));
  if (!unigram && settings.add_dummy_prefix &&
      std::find(data.types.begin(), pieces, TokenType::kUserDefined) != pieces)
    return refused("is BPE with user-defined pieces and a dummy prefix");
  TokenizerData made = data;
  made.add_space_prefix = settings.add_dummy_prefix;
  if (!unigram) made.kind = TokenizerKind::kSentencePiece;
  for (size_t id = 0; id < made.tokens.size(); ++id)  // as converters write them
    if (made.types[id] == TokenType::kUserDefined)
      for (size_t at; (at = made.tokens[id].find("▁")) != std::string::npos;)
        made.tokens[id].replace(at, std::string_view("▁").size(), " ");
  if (!unigram) made.pipeline.clear();
  return made;
}

}  // namespace tessera
