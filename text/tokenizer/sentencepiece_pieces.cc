#include "text/tokenizer/sentencepiece_pieces.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "text/tokenizer/kinds.h"

namespace tessera {
namespace {

constexpr std::string_view kSpaceSymbol = "\xe2\x96\x81";  // ▁, U+2581
constexpr float kUnknownPenalty = 10;
constexpr double kUserDefinedByteScore = 0.1;  // fixed, as in sentencepiece 0.2.3, whatever its score in the file

}  // namespace

SentencePiecePieces::SentencePiecePieces(const TokenizerData& data, size_t pieces,
                                         SentencePieceAlgorithm algorithm,
                                         const UserDefinedPieces& user_defined)
    : data_(data),
      algorithm_(algorithm),
      user_defined_(user_defined),
      merges_(data, std::span(data.types).first(pieces)),
      lowest_(std::numeric_limits<float>::max()) {
  if (algorithm != SentencePieceAlgorithm::kUnigram) return;
  std::vector<std::pair<std::string_view, int32_t>> keys;
  for (size_t id = 0; id < pieces; ++id) {
    const TokenType type = data.types[id];
    if (type == TokenType::kNormal) lowest_ = std::min(lowest_, data.scores[id]);
    if (type == TokenType::kNormal || type == TokenType::kUserDefined)
      keys.emplace_back(data.tokens[id], static_cast<int32_t>(id));
  }
  trie_ = ByteTrie(std::move(keys));
}

int32_t SentencePiecePieces::id_of(std::string_view piece) const {
  const int32_t id = merges_.find(piece);
  return id < 0 ? data_.unknown : id;
}

size_t SentencePiecePieces::symbol_size(std::string_view text, size_t at, const MayMatch& may_match,
                                        bool& is_whole) const {
  const size_t size = user_defined_.longest_prefix(
      text.substr(at), [&](size_t end, int32_t id) { return may_match(at, at + end, id); });
  is_whole = size > 0;
  return is_whole ? size : first_character(text.substr(at));
}

size_t SentencePiecePieces::independent_part(std::string_view text) const {
  switch (algorithm_) {
    case SentencePieceAlgorithm::kBpe: return merges_.end_of_word(text);
    case SentencePieceAlgorithm::kUnigram: {
      constexpr size_t kLongestSum = size_t{1} << 16;
      size_t end = 0;
      while (end < text.size() && end < kLongestSum) end += merges_.end_of_word(text.substr(end));
      return end;
    }
    default: return text.size();
  }
}

void SentencePiecePieces::split(std::string_view text, const MayMatch& may_match, Scratch& scratch,
                                std::vector<SentencePiecePiece>& pieces) const {
  const auto put = [&](size_t begin, size_t end) {
    pieces.push_back({static_cast<uint32_t>(begin), static_cast<uint32_t>(end - begin),
                      id_of(text.substr(begin, end - begin))});
  };
  switch (algorithm_) {
    case SentencePieceAlgorithm::kUnigram: return split_unigram(text, may_match, scratch, pieces);
    case SentencePieceAlgorithm::kBpe: return split_bpe(text, may_match, scratch, pieces);
    case SentencePieceAlgorithm::kWord:
      for (size_t begin = 0, end = 0; begin < text.size(); begin = end) {
        end = std::min(text.find(kSpaceSymbol, begin + 1), text.size());
        put(begin, end);
      }
      return;
    case SentencePieceAlgorithm::kChar:
      for (size_t begin = 0, end = 0; begin < text.size(); begin = end) {
        bool is_whole = false;
        end += symbol_size(text, begin, may_match, is_whole);
        put(begin, end);
      }
      return;
  }
}

void SentencePiecePieces::split_bpe(std::string_view text, const MayMatch& may_match, Scratch& scratch,
                                    std::vector<SentencePiecePiece>& pieces) const {
  scratch.merges.symbols.clear();
  for (size_t at = 0; at < text.size();) {
    bool is_whole = false;
    const size_t size = symbol_size(text, at, may_match, is_whole);
    scratch.merges.add(at, size, is_whole);
    at += size;
  }
  merges_.merge(text, scratch.merges, [&](std::string_view piece) {
    pieces.push_back({static_cast<uint32_t>(piece.data() - text.data()), static_cast<uint32_t>(piece.size()),
                      id_of(piece)});
  });
}

// The path with the highest sum of scores. Sums are rounded to f32 after
// each piece, as in sentencepiece, so that near ties give the same path.
void SentencePiecePieces::split_unigram(std::string_view text, const MayMatch& may_match, Scratch& scratch,
                                        std::vector<SentencePiecePiece>& pieces) const {
  std::vector<Scratch::Node>& nodes = scratch.nodes;
  nodes.assign(text.size() + 1, {});
  const float unknown_score = lowest_ - kUnknownPenalty;
  for (size_t at = 0, size = 0; at < text.size(); at += size) {
    size = first_character(text.substr(at));
    const float before = nodes[at].score;
    const auto reach = [&](size_t end, float score, int32_t id) {
      Scratch::Node& node = nodes[end];
      const float sum = score + before;
      if (node.begin < 0 || sum > node.score) node = {sum, static_cast<int32_t>(at), id};
    };
    bool has_single = false;
    uint32_t node = ByteTrie::kRoot;
    for (size_t end = at; end < text.size();) {
      node = trie_.next(node, static_cast<uint8_t>(text[end++]));
      if (node == ByteTrie::kNone) break;
      const int32_t id = trie_.value(node);
      if (id < 0) continue;
      float score = data_.scores[static_cast<size_t>(id)];
      if (data_.types[static_cast<size_t>(id)] == TokenType::kUserDefined) {
        if (!may_match(at, end, id)) continue;
        score = static_cast<float>(kUserDefinedByteScore * static_cast<double>(end - at) - kUserDefinedByteScore);
      }
      reach(end, score, id);
      has_single = has_single || end - at == size;
    }
    if (!has_single) reach(at + size, unknown_score, data_.unknown);
  }
  scratch.reversed.clear();
  for (size_t end = text.size(); end > 0;) {
    const Scratch::Node& node = nodes[end];
    const auto begin = static_cast<size_t>(node.begin);
    scratch.reversed.push_back({static_cast<uint32_t>(begin), static_cast<uint32_t>(end - begin), node.id});
    end = begin;
  }
  pieces.insert(pieces.end(), scratch.reversed.rbegin(), scratch.reversed.rend());
}

}  // namespace tessera
