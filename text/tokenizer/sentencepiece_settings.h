// SentencePieceSettings: how a tokenizer.model normalizes texts, splits them and shows tokens. In TokenizerData they are
// the JSON text `pipeline`.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "graph/base/result.h"
#include "text/tokenizer/added_tokens.h"

namespace tessera {

enum class SentencePieceAlgorithm { kUnigram = 1, kBpe = 2, kWord = 3, kChar = 4 };  // numbers of the file

// Where a text gets its dummy prefix: each part of it between control tokens, or the text's beginning only.
enum class DummyPrefix { kEachPart, kFirstPart };

struct SentencePieceSettings {
  SentencePieceAlgorithm algorithm = SentencePieceAlgorithm::kUnigram;
  bool byte_fallback = false;
  bool add_dummy_prefix = true, remove_extra_whitespaces = true, escape_whitespaces = true;
  bool treat_whitespace_as_suffix = false;
  DummyPrefix dummy_prefix = DummyPrefix::kEachPart;
  bool prefix_unless_space = false;  // none where the text begins with a space
  std::string charsmap, denormalizer_charsmap;   // bytes; empty: none
  std::string unknown_surface = " \xe2\x81\x87 ";  // what an unknown token is decoded to
  int64_t pieces = 0;  // tokens of the file, which are first; 0: all are. Others are added ones and unused ones
  std::vector<AddedToken> added;  // found in a text before it is normalized, with control tokens
};

std::string to_json_text(const SentencePieceSettings& settings);
// kCorrupt, kInvalidArgument or kUnsupported names the member that is wrong.
Result<SentencePieceSettings> read_sentencepiece_settings(std::string_view json_text);

}  // namespace tessera
