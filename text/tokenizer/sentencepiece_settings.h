// SentencePieceSettings: a tokenizer.model's settings for normalizing,
// splitting and decoding. Stored as JSON text in TokenizerData::pipeline.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "graph/base/result.h"
#include "text/tokenizer/added_tokens.h"

namespace tessera {

enum class SentencePieceAlgorithm { kUnigram = 1, kBpe = 2, kWord = 3, kChar = 4 };  // numbers of the file

// DummyPrefix: at each part between control tokens, or only at the text's start.
enum class DummyPrefix { kEachPart, kFirstPart };

struct SentencePieceSettings {
  SentencePieceAlgorithm algorithm = SentencePieceAlgorithm::kUnigram;
  bool byte_fallback = false;
  bool add_dummy_prefix = true, remove_extra_whitespaces = true, escape_whitespaces = true;
  bool treat_whitespace_as_suffix = false;
  DummyPrefix dummy_prefix = DummyPrefix::kEachPart;
  bool prefix_unless_space = false;  // none if the text begins with a space
  std::string charsmap, denormalizer_charsmap;   // bytes; empty: none
  std::string unknown_surface = " \xe2\x81\x87 ";  // text of an unknown token
  int64_t pieces = 0;  // number of the file's tokens, which are first; 0: all. The others are added or unused
  std::vector<AddedToken> added;  // matched before normalization, with control tokens
};

std::string to_json_text(const SentencePieceSettings& settings);
// kCorrupt, kInvalidArgument or kUnsupported names the wrong member.
Result<SentencePieceSettings> read_sentencepiece_settings(std::string_view json_text);

}  // namespace tessera
