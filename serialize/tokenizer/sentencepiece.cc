// SentencePiece BPE with byte fallback (Llama): spaces become "▁", then the neighbouring pair whose
// concatenation is the token with the highest score merges, leftmost first, until none is left. What is no
// token becomes its bytes.
#include <array>
#include <queue>
#include <unordered_map>

#include "graph/base/text.h"
#include "serialize/tokenizer/kinds.h"
#include "serialize/tokenizer/special_tokens.h"

namespace tessera {
namespace {

constexpr std::string_view kSpace = "\xe2\x96\x81";  // ▁, U+2581

std::string replace_all(std::string_view text, std::string_view from, std::string_view to) {
  std::string result;
  result.reserve(text.size() + text.size() / 4);
  for (size_t position = 0;;) {
    const size_t found = text.find(from, position);
    if (found == std::string_view::npos) return result.append(text.substr(position));
    result.append(text.substr(position, found - position)).append(to);
    position = found + from.size();
  }
}

class SentencePieceTokenizer final : public Tokenizer {
 public:
  explicit SentencePieceTokenizer(TokenizerData data)
      : Tokenizer(std::move(data)), types_(types_of(data_)), special_(data_.tokens, types_) {
    ids_.reserve(data_.tokens.size());
    bytes_.fill(data_.unknown);
    for (size_t id = 0; id < data_.tokens.size(); ++id) {  // of equal tokens the last one counts
      ids_[data_.tokens[id]] = static_cast<int32_t>(id);
      longest_ = std::max(longest_, data_.tokens[id].size());
    }
    for (int byte = 0; byte < 256; ++byte) {  // a one-byte token serves where there is no "<0xNN>"
      auto found = ids_.find(std::string(1, static_cast<char>(byte)));
      if (found != ids_.end()) bytes_[static_cast<size_t>(byte)] = found->second;
    }
    for (const auto& [token, id] : ids_) {
      if (const int byte = byte_of_token(token); byte >= 0) bytes_[static_cast<size_t>(byte)] = id;
    }
  }

  int missing_byte() const {  // a byte that no token can stand for, or -1
    for (size_t byte = 0; byte < 256; ++byte) {
      if (bytes_[byte] < 0) return static_cast<int>(byte);
    }
    return -1;
  }

  std::vector<int32_t> encode(std::string_view text, bool parse_special) const override {
    std::vector<int32_t> ids;
    bool after_special = true;  // so is the start of the text
    for (const TextFragment& fragment : special_.split(text, parse_special)) {
      if (fragment.token >= 0) {
        ids.push_back(fragment.token);
      } else {
        std::string escaped = data_.add_space_prefix && after_special ? std::string(kSpace) : std::string();
        escaped += replace_all(fragment.text, " ", kSpace);
        merge(escaped, ids);
      }
      after_special = fragment.token >= 0;
    }
    return ids;
  }

  std::string decode_one(int32_t id, int32_t previous) const override {
    const auto index = static_cast<size_t>(id);
    if (id < 0 || index >= data_.tokens.size()) return {};
    const std::string& token = data_.tokens[index];
    switch (types_[index]) {
      case TokenType::kUnknown:
      case TokenType::kControl:
      case TokenType::kUnused: return {};
      case TokenType::kUserDefined: return token;
      case TokenType::kByte:
        if (const int byte = byte_of_token(token); byte >= 0) return std::string(1, static_cast<char>(byte));
        return token;
      case TokenType::kNormal: break;
    }
    std::string text = replace_all(token, kSpace, " ");
    const bool first = previous < 0 || previous == data_.bos;
    if (first && data_.add_space_prefix && text.starts_with(' ')) text.erase(0, 1);
    return text;
  }

 private:
  static std::vector<TokenType> types_of(const TokenizerData& data) {
    if (!data.types.empty()) return data.types;
    std::vector<TokenType> types(data.tokens.size(), TokenType::kNormal);
    for (size_t id = 0; id < types.size(); ++id) {
      if (byte_of_token(data.tokens[id]) >= 0) types[id] = TokenType::kByte;
    }
    for (int32_t id : {data.bos, data.eos, data.pad}) {
      if (id >= 0) types[static_cast<size_t>(id)] = TokenType::kControl;
    }
    if (data.unknown >= 0) types[static_cast<size_t>(data.unknown)] = TokenType::kUnknown;
    return types;
  }

  struct Symbol {
    uint32_t begin, size;  // size 0: merged into its left neighbour
    int32_t previous, next;
  };
  struct Pair {
    float score;
    int32_t left, right;
    uint32_t size;  // of both together when the pair was formed: tells an outdated pair
    bool operator<(const Pair& other) const {
      return score < other.score || (score == other.score && left > other.left);
    }
  };

  void merge(std::string_view text, std::vector<int32_t>& ids) const {
    // Symbols count bytes in 32 bits: longer texts go in parts, cut before a space.
    constexpr size_t kLargest = size_t{1} << 30;
    while (text.size() > kLargest) {
      size_t cut = text.rfind(kSpace, kLargest);
      if (cut == 0 || cut == std::string_view::npos) cut = kLargest;
      merge(text.substr(0, cut), ids);
      text.remove_prefix(cut);
    }
    std::vector<Symbol> symbols;
    symbols.reserve(text.size());
    for (size_t position = 0; position < text.size();) {
      const size_t size = first_character(text.substr(position));
      const auto index = static_cast<int32_t>(symbols.size());
      symbols.push_back({static_cast<uint32_t>(position), static_cast<uint32_t>(size), index - 1, index + 1});
      position += size;
    }
    if (symbols.empty()) return;
    symbols.back().next = -1;

    std::priority_queue<Pair> queue;
    auto try_pair = [&](int32_t left, int32_t right) {
      if (left < 0 || right < 0) return;
      const Symbol& a = symbols[static_cast<size_t>(left)];
      const uint32_t size = a.size + symbols[static_cast<size_t>(right)].size;
      if (size > longest_) return;
      auto found = ids_.find(text.substr(a.begin, size));
      if (found != ids_.end())
        queue.push({data_.scores[static_cast<size_t>(found->second)], left, right, size});
    };
    for (size_t i = 1; i < symbols.size(); ++i)
      try_pair(static_cast<int32_t>(i) - 1, static_cast<int32_t>(i));
    while (!queue.empty()) {
      const Pair pair = queue.top();
      queue.pop();
      Symbol& left = symbols[static_cast<size_t>(pair.left)];
      Symbol& right = symbols[static_cast<size_t>(pair.right)];
      if (left.size == 0 || right.size == 0 || left.size + right.size != pair.size) continue;
      left.size = pair.size;
      left.next = right.next;
      right.size = 0;
      if (right.next >= 0) symbols[static_cast<size_t>(right.next)].previous = pair.left;
      try_pair(left.previous, pair.left);
      try_pair(pair.left, left.next);
    }

    for (int32_t i = 0; i >= 0; i = symbols[static_cast<size_t>(i)].next) {
      const Symbol& symbol = symbols[static_cast<size_t>(i)];
      const std::string_view piece = text.substr(symbol.begin, symbol.size);
      auto found = ids_.find(piece);
      if (found != ids_.end()) {
        ids.push_back(found->second);
      } else {
        for (char character : piece) ids.push_back(bytes_[static_cast<uint8_t>(character)]);
      }
    }
  }

  std::vector<TokenType> types_;
  SpecialTokens special_;
  std::unordered_map<std::string_view, int32_t> ids_;  // views into data_.tokens, which never changes
  std::array<int32_t, 256> bytes_{};
  size_t longest_ = 0;
};

}  // namespace

Result<std::shared_ptr<const Tokenizer>> create_sentencepiece_tokenizer(TokenizerData data) {
  if (data.tokens.empty() || data.scores.empty()) {
    return Status(
        StatusCode::kInvalidArgument,
        format("a SentencePiece tokenizer needs tokens and a score for each; got {} tokens, {} scores",
               data.tokens.size(), data.scores.size()));
  }
  auto tokenizer = std::make_shared<SentencePieceTokenizer>(std::move(data));
  if (const int byte = tokenizer->missing_byte(); byte >= 0) {
    return Status(
        StatusCode::kInvalidArgument,
        format("the vocabulary has neither a token for byte {} (\"<0xNN>\") nor an unknown token", byte));
  }
  return std::shared_ptr<const Tokenizer>(std::move(tokenizer));
}

}  // namespace tessera
