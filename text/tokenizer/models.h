// Models of tokenizer files: a piece of text becomes tokens of the vocabulary. Immutable; any thread.
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

// Buffers of one call of `encode`. One thread.
struct ModelScratch {
  struct Symbol {
    int32_t id;
    int32_t previous, next;  // -1: none
    uint32_t begin, size;    // in the piece; size 0: merged into its left neighbour
  };
  struct Merge {
    uint32_t rank;
    int32_t at, id;  // the left symbol, and what both become
  };
  struct Node {
    double score;
    uint32_t begin;  // of the token that ends here; kUnreached: none does
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
  // Appends the tokens of a piece that is not empty and has less than 2^30 bytes. kInvalidArgument for what the
  // vocabulary has no token for, where it has no unknown token either.
  virtual Status tokenize(std::string_view piece, ModelScratch& scratch,
                          std::vector<WordToken>& tokens) const = 0;
  // The size of a first part of a piece that is tokenized as if nothing followed: all of it where none is known.
  virtual size_t independent_part(std::string_view piece) const { return piece.size(); }
};

// Tokens that a model may give: those of its own vocabulary that are no control tokens, by text. Of equal texts the
// last counts. Views into the data's tokens.
using ModelVocabulary = std::unordered_map<std::string_view, int32_t>;

// From the "model" of a tokenizer.json without its vocabulary and merges, which are in `data`: tokens, merge_ids and
// log_probabilities. `data` must outlive the model. `in_model`, by id: the token is one of the model's vocabulary.
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
