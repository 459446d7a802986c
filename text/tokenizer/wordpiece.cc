// WordPiece (BERT): lower-cases text, strips accents, and splits at spaces,
// punctuation and Chinese characters. Each word becomes the longest tokens
// from the left; a word that cannot be covered is unknown. The vocabulary
// writes word starts as "▁word" and continuations without a mark.
#include <utf8proc.h>

#include <algorithm>
#include <memory>
#include <unordered_map>

#include "graph/base/text.h"
#include "text/tokenizer/kinds.h"
#include "text/tokenizer/special_tokens.h"
#include "text/tokenizer/word_cache.h"

namespace tessera {
namespace {

constexpr std::string_view kWordStart = "\xe2\x96\x81";  // ▁, U+2581

bool is_chinese(utf8proc_int32_t code) {
  constexpr utf8proc_int32_t kBlocks[][2] = {{0x4e00, 0x9fff},   {0x3400, 0x4dbf},   {0x20000, 0x2a6df},
                                             {0x2a700, 0x2b73f}, {0x2b740, 0x2b81f}, {0x2b820, 0x2ceaf},
                                             {0xf900, 0xfaff},   {0x2f800, 0x2fa1f}};
  return std::ranges::any_of(kBlocks,
                             [code](const auto& block) { return code >= block[0] && code <= block[1]; });
}

bool is_space(utf8proc_int32_t code) {
  const auto category = utf8proc_category(code);
  return code == '\t' || code == '\n' || code == '\r' || code == '\v' || code == '\f' || code == 0x85 ||
         category == UTF8PROC_CATEGORY_ZS || category == UTF8PROC_CATEGORY_ZL ||
         category == UTF8PROC_CATEGORY_ZP;
}

bool is_dropped(utf8proc_int32_t code) {
  const auto category = utf8proc_category(code);
  return code == 0xfffd || category == UTF8PROC_CATEGORY_CC || category == UTF8PROC_CATEGORY_CF ||
         category == UTF8PROC_CATEGORY_CO || category == UTF8PROC_CATEGORY_MN;
}

bool stands_alone(utf8proc_int32_t code) {
  const auto category = utf8proc_category(code);
  const bool punctuation = category >= UTF8PROC_CATEGORY_PC && category <= UTF8PROC_CATEGORY_PO;
  const bool symbol = category >= UTF8PROC_CATEGORY_SM && category <= UTF8PROC_CATEGORY_SO;
  return punctuation || (code < 0x7f && symbol) || is_chinese(code);
}

// Word: a word, and the original byte of each byte.
struct Word {
  std::string text;
  std::vector<size_t> origins;

  void append(std::string_view bytes, size_t origin) {
    text += bytes;
    origins.resize(text.size(), origin);
  }
};

// Calls `use` with every word of the text, prefixed by the word mark.
template <class Use>
void for_each_word(std::string_view text, Use&& use) {
  Word word;
  const auto end_word = [&] {
    if (!word.text.empty()) use(word);
    word.text.clear();
    word.origins.clear();
  };
  const auto append = [&](utf8proc_int32_t code, size_t origin) {
    if (is_space(code)) return end_word();
    if (is_dropped(code)) return;
    utf8proc_uint8_t bytes[4];
    const auto size = utf8proc_encode_char(utf8proc_tolower(code), bytes);
    const bool alone = stands_alone(code);
    if (alone) end_word();
    if (word.text.empty()) word.append(kWordStart, origin);
    word.append({reinterpret_cast<const char*>(bytes), static_cast<size_t>(size)}, origin);
    if (alone) end_word();
  };
  auto bytes = reinterpret_cast<const utf8proc_uint8_t*>(text.data());
  for (size_t position = 0; position < text.size();) {
    utf8proc_int32_t code = -1;
    const auto size =
        utf8proc_iterate(bytes + position, static_cast<utf8proc_ssize_t>(text.size() - position), &code);
    if (size <= 0) {
      ++position;  // invalid UTF-8: dropped, like U+FFFD
      continue;
    }
    utf8proc_int32_t decomposed[32];
    int last_class = 0;
    const auto count = utf8proc_decompose_char(code, decomposed, 32, UTF8PROC_DECOMPOSE, &last_class);
    if (count <= 0 || count > 32) {
      append(code, position);
    } else {
      for (utf8proc_ssize_t i = 0; i < count; ++i) append(decomposed[i], position);
    }
    position += static_cast<size_t>(size);
  }
  end_word();
}

class WordPieceTokenizer final : public Tokenizer {
 public:
  explicit WordPieceTokenizer(TokenizerData data) : Tokenizer(std::move(data)), special_(special_of(data_)) {
    ids_.reserve(data_.tokens.size());
    for (size_t id = 0; id < data_.tokens.size(); ++id) {
      ids_[data_.tokens[id]] = static_cast<int32_t>(id);
      longest_ = std::max(longest_, data_.tokens[id].size());
    }
  }

  Status encode_into(std::string_view text, const EncodeOptions& options, TokenSink& out) const override {
    std::vector<WordToken> tokens;
    for (const TextFragment& fragment : special_.split(text, options)) {
      if (fragment.token >= 0) {
        out.add(fragment.token, fragment.begin);
        continue;
      }
      for_each_word(fragment.text, [&](const Word& word) {
        tokens.clear();
        encode_word(word.text, tokens);
        for (const WordToken& token : tokens) out.add(token.id, fragment.begin + word.origins[token.begin]);
      });
    }
    return {};
  }

  std::string decode_one(int32_t id, int32_t previous) const override {
    const auto index = static_cast<size_t>(id);
    if (id < 0 || index >= data_.tokens.size()) return {};
    if (!data_.types.empty() && data_.types[index] == TokenType::kControl) return {};
    std::string_view token = data_.tokens[index];
    if (!token.starts_with(kWordStart)) return std::string(token);
    token.remove_prefix(kWordStart.size());
    const bool first = previous < 0 || previous == data_.bos;
    std::string text(first ? "" : " ");
    return text.append(token);
  }

 private:
  static SpecialTokens special_of(const TokenizerData& data) {
    std::vector<TokenType> types = data.types;
    types.resize(data.tokens.size(), TokenType::kNormal);
    for (int32_t id : {data.bos, data.eos, data.unknown, data.pad}) {
      if (id >= 0) types[static_cast<size_t>(id)] = TokenType::kControl;
    }
    return SpecialTokens(data.tokens, types);
  }

  // `tokens` is empty.
  void encode_word(std::string_view word, std::vector<WordToken>& tokens) const {
    for (size_t position = 0; position < word.size();) {
      size_t size = std::min(longest_, word.size() - position);
      auto found = ids_.end();
      for (; size > 0; --size) {
        found = ids_.find(word.substr(position, size));
        if (found != ids_.end()) break;
      }
      if (size == 0) {
        tokens.assign(1, {data_.unknown, 0});
        return;
      }
      tokens.push_back({found->second, static_cast<uint32_t>(position)});
      position += size;
    }
  }

  SpecialTokens special_;
  std::unordered_map<std::string_view, int32_t> ids_;  // views into data_.tokens, which never changes
  size_t longest_ = 0;
};

}  // namespace

Result<std::shared_ptr<const Tokenizer>> create_wordpiece_tokenizer(TokenizerData data) {
  if (data.tokens.empty() || data.unknown < 0) {
    return Status(StatusCode::kInvalidArgument,
                  format("a WordPiece tokenizer needs tokens and an unknown token; got {} tokens, unknown {}",
                         data.tokens.size(), data.unknown));
  }
  return std::shared_ptr<const Tokenizer>(std::make_shared<WordPieceTokenizer>(std::move(data)));
}

}  // namespace tessera
