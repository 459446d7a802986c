// SentencePiecePieces: a normalized text as pieces of the vocabulary, by each of SentencePiece's algorithms: Unigram, BPE,
// word and char (sentencepiece's src/*_model.cc, to the same rounding). Immutable; any thread.
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
  int32_t id;  // the unknown token's where the vocabulary has no such piece
};

class SentencePiecePieces {
 public:
  // Buffers of one thread.
  struct Scratch {
    struct Node {
      float score = 0;
      int32_t begin = -1;  // of the piece that ends here; -1: none does
      int32_t id = -1;
    };
    std::vector<Node> nodes;
    std::vector<SentencePiecePiece> reversed;
    ScoreMerges::Scratch merges;
  };
  // Whether a user-defined token may be at bytes [begin, end) of the text.
  using MayMatch = std::function<bool(size_t begin, size_t end, int32_t id)>;

  // Of the first `pieces` tokens. Borrows the data, whose types are complete and whose unknown token is one, and the
  // user-defined tokens.
  SentencePiecePieces(const TokenizerData& data, size_t pieces, SentencePieceAlgorithm algorithm,
                      const UserDefinedPieces& user_defined);

  // Appends the pieces of a text of less than 2^30 bytes.
  void split(std::string_view text, const MayMatch& may_match, Scratch& scratch,
             std::vector<SentencePiecePiece>& pieces) const;
  // Bytes of a first part of the text that is split as if nothing followed: bounds memory, and what sums of scores in
  // single precision lose.
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
