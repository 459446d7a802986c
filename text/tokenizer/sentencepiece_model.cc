#include "text/tokenizer/sentencepiece_model.h"

#include <algorithm>
#include <cmath>

#include "graph/base/text.h"
#include "text/tokenizer/protobuf_reader.h"

namespace tessera {
namespace {

// Proto: the used fields, with numbers and defaults as in sentencepiece_model.proto.
struct Proto {
  std::vector<std::string> tokens;
  std::vector<float> scores;
  std::vector<TokenType> types;
  uint64_t algorithm = 1;
  int32_t bos = 1, eos = 2, pad = -1;
  SentencePieceSettings settings;
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
  if (std::isnan(score)) return corrupt(format("the score of piece {} is not a number", id));
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
      case 3: to.algorithm = fields.number(); break;
      case 24: to.settings.treat_whitespace_as_suffix = fields.number() != 0; break;
      case 35: to.settings.byte_fallback = fields.number() != 0; break;
      case 41: to.bos = id; break;
      case 42: to.eos = id; break;
      case 43: to.pad = id; break;
      case 44: to.settings.unknown_surface = fields.bytes(); break;
      default: break;
    }
  }
  return fields.ok() ? Status() : corrupt("its trainer's settings are broken");
}

Status read_normalizer(std::string_view message, SentencePieceSettings& to) {
  ProtobufReader fields(message);
  while (fields.next()) {
    switch (fields.field()) {
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
    if (fields.field() == 3) TSR_RETURN_IF_ERROR(read_normalizer(fields.bytes(), read.settings));
    if (fields.field() == 5) {
      SentencePieceSettings denormalizer;
      TSR_RETURN_IF_ERROR(read_normalizer(fields.bytes(), denormalizer));
      read.settings.denormalizer_charsmap = std::move(denormalizer.charsmap);
    }
  }
  if (!fields.ok() || read.tokens.empty()) return corrupt("it is no SentencePiece model");
  for (int32_t* id : {&read.bos, &read.eos, &read.pad})
    if (*id < 0 || static_cast<size_t>(*id) >= read.tokens.size()) *id = -1;
  return read;
}

// Whether the faster kSentencePiece gives equal ids and text.
bool is_plain_bpe(const SentencePieceModel& model) {
  const SentencePieceSettings& settings = model.settings;
  return settings.algorithm == SentencePieceAlgorithm::kBpe && settings.byte_fallback &&
         settings.escape_whitespaces && !settings.remove_extra_whitespaces &&
         !settings.treat_whitespace_as_suffix && settings.charsmap.empty() &&
         settings.denormalizer_charsmap.empty() &&
         std::ranges::find(model.data.types, TokenType::kUserDefined) == model.data.types.end();
}

}  // namespace

Result<SentencePieceModel> read_sentencepiece_model(std::string_view file) {
  TSR_ASSIGN_OR_RETURN(Proto proto, read_proto(file));
  if (proto.algorithm < 1 || proto.algorithm > 4)
    return Status(StatusCode::kUnsupported,
                  format("tokenizer.model has a model of type {}; 1 (Unigram), 2 (BPE), 3 (word) and 4 (char) "
                         "are known",
                         proto.algorithm));
  proto.settings.algorithm = static_cast<SentencePieceAlgorithm>(proto.algorithm);
  const auto unknown = std::ranges::find(proto.types, TokenType::kUnknown);
  if (unknown == proto.types.end()) return corrupt("no piece is the unknown token");
  SentencePieceModel model;
  TokenizerData& data = model.data;
  data.unknown = static_cast<int32_t>(unknown - proto.types.begin());
  data.tokens = std::move(proto.tokens);
  data.scores = std::move(proto.scores);
  data.types = std::move(proto.types);
  data.bos = proto.bos;
  data.eos = proto.eos;
  data.pad = proto.pad;
  data.add_space_prefix = proto.settings.add_dummy_prefix;
  model.settings = std::move(proto.settings);
  return model;
}

Result<TokenizerData> sentencepiece_model(std::string_view file, std::vector<int32_t> end_ids) {
  TSR_ASSIGN_OR_RETURN(SentencePieceModel model, read_sentencepiece_model(file));
  TokenizerData& data = model.data;
  const bool plain = is_plain_bpe(model);
  data.kind = plain ? TokenizerKind::kSentencePiece : TokenizerKind::kSentencePieceModel;
  if (!plain) data.pipeline = to_json_text(model.settings);
  data.add_bos = model.settings.algorithm == SentencePieceAlgorithm::kBpe && data.bos >= 0;
  data.end_ids = std::move(end_ids);
  return std::move(data);
}

}  // namespace tessera
