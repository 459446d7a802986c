// RWKV: tokens are byte strings; encoding takes the longest match. Vocabulary files hold literals with
// , \t, \r, \\, \xNN and escaped quotes.
#include <algorithm>

#include "graph/base/text.h"
#include "text/tokenizer/byte_trie.h"
#include "text/tokenizer/kinds.h"
#include "text/tokenizer/special_tokens.h"

namespace tessera {
namespace {

int hex_value(char digit) {
  if (digit >= '0' && digit <= '9') return digit - '0';
  const char lower = static_cast<char>(digit | 32);
  return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

std::string bytes_of_literal(std::string_view text) {
  std::string bytes;
  for (size_t at = 0; at < text.size(); ++at) {
    if (text[at] != '\\' || at + 1 == text.size()) {
      bytes += text[at];
      continue;
    }
    const char escaped = text[++at];
    if (escaped == 'x' && at + 2 < text.size() && hex_value(text[at + 1]) >= 0 &&
        hex_value(text[at + 2]) >= 0) {
      bytes += static_cast<char>(hex_value(text[at + 1]) * 16 + hex_value(text[at + 2]));
      at += 2;
    } else {
      bytes += escaped == 'n' ? '\n' : escaped == 't' ? '\t' : escaped == 'r' ? '\r' : escaped;
    }
  }
  return bytes;
}

class RwkvTokenizer final : public Tokenizer {
 public:
  explicit RwkvTokenizer(TokenizerData data) : Tokenizer(std::move(data)), special_(special_of(data_)) {
    std::vector<std::pair<std::string_view, int32_t>> keys;
    for (const std::string& token : data_.tokens) texts_.push_back(bytes_of_literal(token));
    for (size_t id = 0; id < texts_.size(); ++id)
      if (type_of(id) != TokenType::kControl) keys.emplace_back(texts_[id], static_cast<int32_t>(id));
    trie_ = ByteTrie(std::move(keys));
  }

 private:
  TokenType type_of(size_t id) const {
    return id < data_.types.size() ? data_.types[id] : TokenType::kNormal;
  }

  static SpecialTokens special_of(const TokenizerData& data) {
    std::vector<TokenType> types = data.types;
    types.resize(data.tokens.size(), TokenType::kNormal);
    return SpecialTokens(data, types);
  }

  Status encode_into(std::string_view text, const EncodeOptions& options, TokenSink& out) const override {
    for (const TextFragment& fragment : special_.split(text, options)) {
      if (fragment.token >= 0) {
        out.add(fragment.token, fragment.begin);
        continue;
      }
      for (size_t at = 0; at < fragment.text.size();) {
        size_t longest = 0;
        int32_t token = data_.unknown;
        uint32_t node = ByteTrie::kRoot;
        for (size_t end = at; end < fragment.text.size();) {
          node = trie_.next(node, static_cast<uint8_t>(fragment.text[end++]));
          if (node == ByteTrie::kNone) break;
          if (trie_.value(node) < 0) continue;
          longest = end - at;
          token = trie_.value(node);
        }
        if (token >= 0) out.add(token, fragment.begin + at);
        at += std::max<size_t>(longest, 1);
      }
    }
    return {};
  }

  std::string decode_one(int32_t id, int32_t) const override {
    const auto index = static_cast<size_t>(id);
    if (id < 0 || index >= texts_.size() || type_of(index) == TokenType::kControl) return {};
    return texts_[index];
  }

  SpecialTokens special_;
  std::vector<std::string> texts_;  // by id
  ByteTrie trie_;
};

}  // namespace

Result<std::shared_ptr<const Tokenizer>> create_rwkv_tokenizer(TokenizerData data) {
  size_t bytes = 0;
  for (const std::string& token : data.tokens) bytes += token.size();
  if (data.tokens.empty() || bytes > size_t{16} << 20) {
    return Status(
        StatusCode::kInvalidArgument,
        format("an RWKV tokenizer needs tokens of at most 16 MiB together; got {} tokens of {} bytes",
               data.tokens.size(), bytes));
  }
  return std::shared_ptr<const Tokenizer>(std::make_shared<RwkvTokenizer>(std::move(data)));
}

}  // namespace tessera
