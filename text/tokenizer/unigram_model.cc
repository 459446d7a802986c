// Unigram: tokenizes a piece with the greatest sum of log probabilities.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "text/tokenizer/json_members.h"
#include "text/tokenizer/kinds.h"
#include "text/tokenizer/models.h"

namespace tessera {
namespace {

constexpr double kUnknownPenalty = 10;
constexpr uint32_t kUnreached = UINT32_MAX;
constexpr size_t kMostBytes = size_t{16} << 20;  // of all tokens

class UnigramModel final : public TokenModel {
 public:
  UnigramModel(const TokenizerData& data, const std::vector<bool>& in_model, int32_t unknown,
               bool byte_fallback)
      : scores_(data.log_probabilities), unknown_(unknown), byte_fallback_(byte_fallback) {
    std::vector<std::pair<std::string_view, int32_t>> keys;
    double lowest = std::numeric_limits<double>::infinity();
    bytes_.fill(-1);
    for (size_t id = 0; id < data.tokens.size() && id < in_model.size(); ++id) {
      if (!in_model[id]) continue;
      lowest = std::min(lowest, scores_[id]);
      if (const int byte = byte_of_token(data.tokens[id]); byte >= 0)
        bytes_[static_cast<size_t>(byte)] = static_cast<int32_t>(id);
      const bool is_text = data.types[id] != TokenType::kControl && !data.tokens[id].empty();
      if (is_text) keys.emplace_back(data.tokens[id], static_cast<int32_t>(id));
    }
    unknown_score_ = lowest - kUnknownPenalty;
    trie_ = ByteTrie(std::move(keys));
  }

  Status tokenize(std::string_view piece, ModelScratch& scratch,
                  std::vector<WordToken>& tokens) const override {
    std::vector<ModelScratch::Node>& nodes = scratch.nodes;
    nodes.assign(piece.size() + 1, {0, kUnreached, -1});
    for (size_t at = 0, size = 0; at < piece.size(); at += size) {
      size = first_character(piece.substr(at));
      const double before = nodes[at].score;
      const auto reach = [&](size_t end, double score, int32_t id) {
        ModelScratch::Node& node = nodes[end];
        if (node.begin == kUnreached || score > node.score) node = {score, static_cast<uint32_t>(at), id};
      };
      bool single = false;
      uint32_t node = ByteTrie::kRoot;
      for (size_t end = at; end < piece.size();) {
        node = trie_.next(node, static_cast<uint8_t>(piece[end++]));
        if (node == ByteTrie::kNone) break;
        const int32_t id = trie_.value(node);
        if (id < 0) continue;
        reach(end, before + scores_[static_cast<size_t>(id)], id);
        single = single || end - at == size;
      }
      if (single) continue;
      if (unknown_ < 0)
        return Status(
            StatusCode::kInvalidArgument,
            format("the vocabulary has no token for {} and no unknown token", quote(piece.substr(at, size))));
      reach(at + size, unknown_score_ + before, unknown_);
    }
    put_best(piece, scratch, tokens);
    return {};
  }

 private:
  // Follows the best path from its end. A run of unknown tokens becomes one.
  void put_best(std::string_view piece, ModelScratch& scratch, std::vector<WordToken>& tokens) const {
    const std::vector<ModelScratch::Node>& nodes = scratch.nodes;
    scratch.reversed.clear();
    for (size_t end = piece.size(); end > 0;) {
      const ModelScratch::Node& node = nodes[end];
      if (node.id != unknown_) {
        scratch.reversed.push_back({node.id, node.begin});
        end = node.begin;
        continue;
      }
      size_t begin = end;
      while (begin > 0 && nodes[begin].id == unknown_) begin = nodes[begin].begin;
      put_unknown(piece.substr(begin, end - begin), begin, scratch.reversed);
      end = begin;
    }
    tokens.insert(tokens.end(), scratch.reversed.rbegin(), scratch.reversed.rend());
  }

  void put_unknown(std::string_view text, size_t begin, std::vector<WordToken>& reversed) const {
    uint32_t node = ByteTrie::kRoot;
    for (size_t i = 0; i < text.size() && node != ByteTrie::kNone; ++i)
      node = trie_.next(node, static_cast<uint8_t>(text[i]));
    const int32_t whole = node == ByteTrie::kNone ? -1 : trie_.value(node);
    const bool spelt = whole < 0 && byte_fallback_ && std::ranges::all_of(text, [&](char byte) {
                         return bytes_[static_cast<uint8_t>(byte)] >= 0;
                       });
    if (!spelt) {
      reversed.push_back({whole < 0 ? unknown_ : whole, static_cast<uint32_t>(begin)});
      return;
    }
    for (size_t i = text.size(); i-- > 0;)
      reversed.push_back({bytes_[static_cast<uint8_t>(text[i])], static_cast<uint32_t>(begin + i)});
  }

  const std::vector<double>& scores_;  // of the tokenizer's data
  const int32_t unknown_;
  const bool byte_fallback_;
  double unknown_score_ = 0;
  ByteTrie trie_;
  std::array<int32_t, 256> bytes_{};  // tokens of "<0xNN>", or -1
};

}  // namespace

Result<std::unique_ptr<const TokenModel>> make_unigram_model(const nlohmann::json& description,
                                                             const TokenizerData& data,
                                                             const std::vector<bool>& in_model) {
  const JsonMembers members(description, "model Unigram");
  TSR_ASSIGN_OR_RETURN(const bool byte_fallback, members.flag("byte_fallback", false));
  TSR_ASSIGN_OR_RETURN(const int64_t unknown, members.integer("unk_id", -1));
  if (unknown < -1 || unknown >= static_cast<int64_t>(data.tokens.size()))
    return members.wrong("unk_id", format("the id of a token, 0 to {}", data.tokens.size() - 1));
  if (data.log_probabilities.size() != data.tokens.size())
    return Status(StatusCode::kCorrupt, format("the vocabulary has {} log probabilities for {} tokens",
                                               data.log_probabilities.size(), data.tokens.size()));
  size_t bytes = 0;
  for (size_t id = 0; id < data.tokens.size(); ++id) {
    bytes += data.tokens[id].size();
    if (!std::isfinite(data.log_probabilities[id]))
      return Status(
          StatusCode::kInvalidArgument,
          format("the score of token {} is {}, wanted a finite number", id, data.log_probabilities[id]));
  }
  if (bytes > kMostBytes)
    return Status(
        StatusCode::kUnsupported,
        format("the vocabulary's tokens have {} bytes together, at most {} are known", bytes, kMostBytes));
  return std::unique_ptr<const TokenModel>(
      std::make_unique<UnigramModel>(data, in_model, static_cast<int32_t>(unknown), byte_fallback));
}

}  // namespace tessera
