// SentencePiecePieces: splits a normalized text into pieces by SentencePiece's algorithms: Unigram,
// BPE, word and char (sentencepiece's src/*_model.cc, to the same rounding). Immutable; any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "graph/base/result.h"
#include "text/tokenizer/byte_trie.h"
#include "text/tokenizer/score_merges.h"
#include "text/tokenizer/sentencepiece_settings.h"
#include "text/tokenizer/user_defined_pieces.h"

namespace tessera {

struct SentencePiecePiece {
  uint32_t begin, size;
  int32_t id;  // the unknown token if the vocabulary lacks the piece
};

class SentencePiecePieces {
 public:
  // Buffers of one thread.
  struct Scratch {
    struct Node {
      float score = 0;
      int32_t begin = -1;  // of the piece that ends here; -1: none
      int32_t id = -1;
    };
    std::vector<Node> nodes;
    std::vector<SentencePiecePiece> reversed;
    ScoreMerges::Scratch merges;
  };
  // Whether a user-defined token may match at bytes [begin, end) of the text.
  using MayMatch = std::function<bool(size_t begin, size_t end, int32_t id)>;

  // For the first `pieces` tokens. Borrows the user-defined tokens and
  // the data, whose types are complete and which has an unknown token.
  SentencePiecePieces(const TokenizerData& data, size_t pieces, SentencePieceAlgorithm algorithm,
                      const UserDefinedPieces& user_defined);

  // Appends the pieces of a text below 2^30 bytes.
  void split(std::string_view text, const MayMatch& may_match, Scratch& scratch,
             std::vector<SentencePiecePiece>& pieces) const;
  // Size of a first part that is split independently of
  // the rest; bounds memory, and the error of f32 sums.
  size_t independent_part(std::string_view text) const;

 private:
  void split_unigram(std::string_view text, const MayMatch& may_match, Scratch& scratch,
                     std::vector<SentencePiecePiece>& pieces) const;
  void split_bpe(std::string_view text, const MayMatch& may_match, Scratch& scratch,
                 std::vector<SentencePiecePiece>& pieces) const;
  size_t symbol_size(std::string_view text, size_t at, const MayMatch& may_match, bool& is_whole) const;
  int32_t id_of(std::string_view piece) const;

  const TokenizerData& data_;
  const SentencePieceAlgorithm algorithm_;
  const UserDefinedPieces& user_defined_;
  ScoreMerges merges_;
  ByteTrie trie_;  // Unigram's
  float lowest_;  // score of a normal piece
};

}  // namespace tessera
