// TokenModel: tokenizes pieces of text with the vocabulary. Immutable; any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "graph/base/result.h"
#include "text/tokenizer/byte_trie.h"
#include "text/tokenizer/tokenizer.h"
#include "text/tokenizer/word_cache.h"

namespace tessera {

// ModelScratch: buffers of one `encode` call. One thread.
struct ModelScratch {
  struct Symbol {
    int32_t id;
    int32_t previous, next;  // -1: none
    uint32_t begin, size;    // in the piece; size 0: merged into its left neighbour
  };
  struct Merge {
    uint32_t rank;
    int32_t at, id;  // the left symbol, and the merged token
  };
  struct Node {
    double score;
    uint32_t begin;  // of the token that ends here; kUnreached: none
    int32_t id;
  };
  std::vector<Symbol> symbols;
  std::vector<Merge> merges;  // a heap
  std::vector<Node> nodes;    // by byte of the piece at which tokens end
  std::vector<WordToken> reversed;
  std::string text;
};

class TokenModel {
 public:
  virtual ~TokenModel() = default;
  // Appends the tokens of a non-empty piece of less than 2^30 bytes.
  // kInvalidArgument if the vocabulary cannot express it and has no unknown token.
  virtual Status tokenize(std::string_view piece, ModelScratch& scratch,
                          std::vector<WordToken>& tokens) const = 0;
  // Size of a first part that is tokenized independently of the rest; the whole piece if unknown.
  virtual size_t independent_part(std::string_view piece) const { return piece.size(); }
};

// ModelVocabulary: tokens that a model may produce, by text: its own, without
// control tokens. The last of equal texts counts. Views into the data's tokens.
using ModelVocabulary = std::unordered_map<std::string_view, int32_t>;

// From tokenizer.json's "model" without vocabulary and merges, which are in `data`: tokens, merge_ids and
// log_probabilities. `data` must outlive the model. `in_model`: by id, whether the token is the model's.
Result<std::unique_ptr<const TokenModel>> make_token_model(const nlohmann::json& description,
                                                           const TokenizerData& data,
                                                           const std::vector<bool>& in_model);

Result<std::unique_ptr<const TokenModel>> make_bpe_model(const nlohmann::json& description,
                                                         const TokenizerData& data,
                                                         const ModelVocabulary& all,
                                                         ModelVocabulary vocabulary);
Result<std::unique_ptr<const TokenModel>> make_unigram_model(const nlohmann::json& description,
                                                             const TokenizerData& data,
                                                             const std::vector<bool>& in_model);
Result<std::unique_ptr<const TokenModel>> make_wordpiece_model(const nlohmann::json& description,
                                                               const ModelVocabulary& all,
                                                               ModelVocabulary vocabulary);
Result<std::unique_ptr<const TokenModel>> make_wordlevel_model(const nlohmann::json& description,
                                                               const ModelVocabulary& all,
                                                               ModelVocabulary vocabulary);

}  // namespace tessera
