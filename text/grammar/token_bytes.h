// TokenBytes: the bytes of each token within a text, sorted into a
// trie. Made once per tokenizer and shared; immutable; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "graph/base/result.h"

namespace tessera {
class Tokenizer;
}

namespace tessera::grammar {

class TokenBytes {
 public:
  // Tokens by id; one without bytes never occurs in a constrained text.
  // end_ids end it. kInvalidArgument for ids outside the vocabulary.
  static Result<std::shared_ptr<const TokenBytes>> create(std::vector<std::string> tokens,
                                                          std::vector<int32_t> end_ids);
  // The bytes that each id decodes to inside a text. Control tokens have control_bytes. Unknown and unused tokens have none,
  // nor has any other token whose bytes are never in UTF-8.
  static Result<std::shared_ptr<const TokenBytes>> create(const Tokenizer& tokenizer);
  // A control token in a grammar: between bytes that are never in UTF-8, so that no text equals it, and it no text.
  static std::string control_bytes(std::string_view text);
  static bool is_control(std::string_view bytes) { return bytes.size() > 2 && bytes[0] == '\xFF'; }

  static constexpr size_t kMostTokenBytes = 4096;  // longer tokens count as empty

  int32_t vocabulary_size() const { return static_cast<int32_t>(tokens_.size()); }
  size_t mask_words() const { return (tokens_.size() + 31) / 32; }  // of 32 bits
  std::string_view bytes(int32_t id) const { return tokens_[static_cast<size_t>(id)]; }
  bool ends_text(int32_t id) const;
  std::span<const int32_t> end_ids() const { return end_ids_; }

  // TrieNode: nodes in depth-first order, siblings by byte. Tokens are in the same order, so
  // those at and below a node are adjacent: [first_token, first_token of the node at `skip`).
  struct TrieNode {
    uint32_t skip = 0;         // first node outside this subtree
    uint32_t first_token = 0;  // position in order()
    uint16_t depth = 0;        // bytes from the root, which is not stored
    uint8_t byte = 0;
  };
  std::span<const TrieNode> trie() const { return std::span(trie_).first(trie_.size() - 1); }
  // Also for one past the last node.
  uint32_t first_token(size_t node) const { return trie_[node].first_token; }
  std::span<const int32_t> order() const { return order_; }  // ids with bytes, sorted by them
  size_t longest() const { return longest_; }                // longest token in bytes

 private:
  TokenBytes() = default;
  void build_trie();
  std::vector<std::string> tokens_;
  std::vector<int32_t> end_ids_;  // ascending
  std::vector<TrieNode> trie_;    // with a sentinel
  std::vector<int32_t> order_;
  size_t longest_ = 0;
};

}  // namespace tessera::grammar
