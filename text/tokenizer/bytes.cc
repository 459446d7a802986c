// Plain bytes: token i is byte i; ids from 256 on are special tokens.
#include "graph/base/text.h"
#include "text/tokenizer/kinds.h"
#include "text/tokenizer/special_tokens.h"

namespace tessera {
namespace {

class ByteTokenizer final : public Tokenizer {
 public:
  explicit ByteTokenizer(TokenizerData data) : Tokenizer(std::move(data)), special_(special_of(data_)) {}

  Status encode_into(std::string_view text, const EncodeOptions& options, TokenSink& out) const override {
    for (const TextFragment& fragment : special_.split(text, options)) {
      if (fragment.token >= 0) {
        out.add(fragment.token, fragment.begin);
        continue;
      }
      for (size_t i = 0; i < fragment.text.size(); ++i)
        out.add(static_cast<uint8_t>(fragment.text[i]), fragment.begin + i);
    }
    return {};
  }

  std::string decode_one(int32_t id, int32_t) const override {
    if (id >= 0 && id < 256) return std::string(1, static_cast<char>(id));
    const auto index = static_cast<size_t>(id);
    if (id < 0 || index >= data_.tokens.size()) return {};
    const bool shown = index < data_.types.size() && data_.types[index] == TokenType::kUserDefined;
    return shown ? data_.tokens[index] : std::string();
  }

 private:
  static SpecialTokens special_of(const TokenizerData& data) {
    std::vector<TokenType> types(data.tokens.size(), TokenType::kControl);
    std::copy(data.types.begin(), data.types.end(), types.begin());
    std::fill_n(types.begin(), 256, TokenType::kByte);
    return SpecialTokens(data.tokens, types);
  }
  SpecialTokens special_;
};

}  // namespace

Result<std::shared_ptr<const Tokenizer>> create_byte_tokenizer(TokenizerData data) {
  if (data.tokens.size() < 256) {
    return Status(
        StatusCode::kInvalidArgument,
        format("a byte tokenizer needs 256 tokens or none (then they are made), got {}", data.tokens.size()));
  }
  return std::shared_ptr<const Tokenizer>(std::make_shared<ByteTokenizer>(std::move(data)));
}

}  // namespace tessera
