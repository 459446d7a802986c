#include "serialize/tokenizer/sentencepiece_model.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "graph/base/text.h"
#include "serialize/tokenizer/base64.h"
#include "serialize/tokenizer/hugging_face.h"
#include "serialize/tokenizer/protobuf_reader.h"

namespace tessera {
namespace {

using nlohmann::json;

// What is used of the file; numbers of fields and defaults as in sentencepiece_model.proto.
struct Proto {
  std::vector<std::string> tokens;
  std::vector<float> scores;
  std::vector<TokenType> types;
  uint64_t model_type = 1;  // 1 Unigram, 2 BPE, 3 word, 4 char
  bool byte_fallback = false;
  int32_t unknown = 0, bos = 1, eos = 2, pad = -1;
  std::string charsmap, normalizer;
  bool add_dummy_prefix = true, remove_extra_whitespaces = true, escape_whitespaces = true;
};

Status corrupt(std::string message) {
  return Status(StatusCode::kCorrupt, "tokenizer.model: " + std::move(message));
}

Status read_piece(std::string_view message, Proto& to) {
  std::string token;
  float score = 0;
  uint64_t type = 1;
  ProtobufReader fields(message);
  while (fields.next()) {
    if (fields.field() == 1) token = fields.bytes();
    if (fields.field() == 2) score = fields.real();
    if (fields.field() == 3) type = fields.number();
  }
  const size_t id = to.tokens.size();
  if (!fields.ok()) return corrupt(format("piece {} is broken", id));
  if (type < 1 || type > 6) return corrupt(format("piece {} has type {}; types are 1 to 6", id, type));
  if (!std::isfinite(score)) return corrupt(format("the score of piece {} is not a finite number", id));
  to.tokens.push_back(std::move(token));
  to.scores.push_back(score);
  to.types.push_back(static_cast<TokenType>(type));
  return {};
}

Status read_trainer(std::string_view message, Proto& to) {
  ProtobufReader fields(message);
  while (fields.next()) {
    const auto id = static_cast<int32_t>(fields.number());
    switch (fields.field()) {
      case 3: to.model_type = fields.number(); break;
      case 35: to.byte_fallback = fields.number() != 0; break;
      case 40: to.unknown = id; break;
      case 41: to.bos = id; break;
      case 42: to.eos = id; break;
      case 43: to.pad = id; break;
      default: break;
    }
  }
  return fields.ok() ? Status() : corrupt("its trainer's settings are broken");
}

Status read_normalizer(std::string_view message, Proto& to) {
  ProtobufReader fields(message);
  while (fields.next()) {
    switch (fields.field()) {
      case 1: to.normalizer = fields.bytes(); break;
      case 2: to.charsmap = fields.bytes(); break;
      case 3: to.add_dummy_prefix = fields.number() != 0; break;
      case 4: to.remove_extra_whitespaces = fields.number() != 0; break;
      case 5: to.escape_whitespaces = fields.number() != 0; break;
      default: break;
    }
  }
  return fields.ok() ? Status() : corrupt("its normalizer's settings are broken");
}

Result<Proto> read_proto(std::string_view file) {
  Proto read;
  ProtobufReader fields(file);
  while (fields.next()) {
    if (fields.field() == 1) TSR_RETURN_IF_ERROR(read_piece(fields.bytes(), read));
    if (fields.field() == 2) TSR_RETURN_IF_ERROR(read_trainer(fields.bytes(), read));
    if (fields.field() == 3) TSR_RETURN_IF_ERROR(read_normalizer(fields.bytes(), read));
  }
  if (!fields.ok() || read.tokens.empty()) return corrupt("it is no SentencePiece model");
  for (int32_t* id : {&read.unknown, &read.bos, &read.eos, &read.pad})
    if (*id < 0 || static_cast<size_t>(*id) >= read.tokens.size()) *id = -1;
  return read;
}

Result<TokenizerData> bpe_data(Proto proto, std::vector<int32_t> end_ids) {
  if (!proto.charsmap.empty() || proto.remove_extra_whitespaces || !proto.escape_whitespaces)
    return Status(
        StatusCode::kUnsupported,
        format("tokenizer.model: a BPE vocabulary with the normalizer '{}'{}; only identity is known",
               proto.normalizer, proto.remove_extra_whitespaces ? " that removes white space" : ""));
  TokenizerData data;
  data.kind = TokenizerKind::kSentencePiece;
  data.tokens = std::move(proto.tokens);
  data.scores = std::move(proto.scores);
  data.types = std::move(proto.types);
  data.unknown = proto.unknown;
  data.bos = proto.bos;
  data.eos = proto.eos;
  data.pad = proto.pad;
  data.add_bos = true;
  data.add_space_prefix = proto.add_dummy_prefix;
  std::erase_if(end_ids, [&](int32_t id) { return id < 0 || static_cast<size_t>(id) >= data.tokens.size(); });
  data.end_ids = std::move(end_ids);
  return data;
}

// As transformers makes a tokenizer.json of such a file.
Result<TokenizerData> unigram_data(Proto proto, std::string_view tokenizer_config,
                                   std::vector<int32_t> end_ids) {
  TokenizerJson description;
  json steps = json::array();
  if (!proto.charsmap.empty())
    steps.push_back({{"type", "Precompiled"}, {"precompiled_charsmap", encode_base64(proto.charsmap)}});
  if (proto.remove_extra_whitespaces) {
    steps.push_back({{"type", "Strip"}, {"strip_left", false}, {"strip_right", true}});
    steps.push_back({{"type", "Replace"}, {"pattern", {{"Regex", " {2,}"}}}, {"content", "▁"}});
  }
  const char* scheme = proto.add_dummy_prefix ? "always" : "never";
  const json metaspace = {
      {"type", "Metaspace"}, {"replacement", "▁"}, {"prepend_scheme", scheme}, {"split", true}};
  json model = {{"type", "Unigram"}, {"byte_fallback", proto.byte_fallback}};
  if (proto.unknown >= 0) model["unk_id"] = proto.unknown;
  description.rest = {{"normalizer", {{"type", "Sequence"}, {"normalizers", steps}}},
                      {"pre_tokenizer", metaspace},
                      {"decoder", metaspace},
                      {"model", model}};
  for (size_t id = 0; id < proto.tokens.size(); ++id) {
    const bool special = proto.types[id] == TokenType::kControl || proto.types[id] == TokenType::kUnknown;
    if (special || proto.types[id] == TokenType::kUserDefined) {
      AddedToken token;
      token.content = proto.tokens[id];
      token.id = static_cast<int32_t>(id);
      token.normalized = false;
      token.special = special;
      description.added.push_back(std::move(token));
    }
    description.vocabulary.emplace_back(proto.tokens[id], static_cast<int64_t>(id));
    description.log_probabilities.push_back(proto.scores[id]);
  }
  TSR_ASSIGN_OR_RETURN(TokenizerData data,
                       pipeline_data(std::move(description), tokenizer_config, std::move(end_ids)));
  if (data.bos < 0) data.bos = proto.bos;
  if (data.eos < 0) data.eos = proto.eos;
  if (data.pad < 0) data.pad = proto.pad;
  return data;
}

}  // namespace

Result<TokenizerData> sentencepiece_model(std::string_view file, std::string_view tokenizer_config,
                                          std::vector<int32_t> end_ids) {
  TSR_ASSIGN_OR_RETURN(Proto proto, read_proto(file));
  if (proto.model_type == 2) return bpe_data(std::move(proto), std::move(end_ids));
  if (proto.model_type == 1) return unigram_data(std::move(proto), tokenizer_config, std::move(end_ids));
  return Status(
      StatusCode::kUnsupported,
      format("tokenizer.model has a model of type {}; 1 (Unigram) and 2 (BPE) are known", proto.model_type));
}

}  // namespace tessera
