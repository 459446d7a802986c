#include "tests/fuzz/loaders.h"
#include "tests/fuzz/seeds.h"
#include "text/tokenizer/word_splitter.h"

namespace tessera::fuzz {
namespace {

// No file, so no header.
class TokenizerLoader final : public Loader {
 public:
  std::string_view name() const override { return "tokenizer"; }
  Outcome run(Random& random) override {
    TokenizerData data;
    data.kind = static_cast<TokenizerKind>(random.below(7));
    const std::string_view pieces[] = {"a",      "b", "ab", "▁",    "▁ab", "Ġ",   "<s>", "<0x0A>",
                                       "<0xFF>", "",  " ",  "\xff", "c",   "abc", "##b", "Ġa"};
    for (uint64_t left = random.below(40); left > 0; --left)
      data.tokens.emplace_back(random.pick<std::string_view>(pieces));
    if (data.kind == TokenizerKind::kBytes && random.one_in(2))
      data.tokens.resize(256 + random.below(4), "x");
    if (data.kind == TokenizerKind::kSentencePiece && !random.one_in(4)) {
      for (int byte = 0; byte < 256; ++byte) {
        constexpr char kHex[] = "0123456789ABCDEF";
        data.tokens.push_back(std::string("<0x") + kHex[byte >> 4] + kHex[byte & 15] + ">");
      }
    }
    const size_t count = data.tokens.size() + (random.one_in(10) ? 1 : 0);
    for (size_t i = 0; i < count; ++i) {
      if (data.kind == TokenizerKind::kSentencePiece)
        data.scores.push_back(static_cast<float>(random.below(9)) - 4);
      data.types.push_back(static_cast<TokenType>(1 + random.below(random.one_in(300) ? 9 : 6)));
    }
    if (random.one_in(2)) data.types.clear();
    const std::string_view merges[] = {"a b", "ab c", "Ġ a", " a", "a ", "", "ab", "a b c", "Ġa b"};
    for (uint64_t left = random.below(5); left > 0; --left) {
      data.merges.emplace_back(
          random.pick<std::string_view>(std::span(merges).first(random.one_in(8) ? 9 : 3)));
    }
    const auto patterns = known_split_patterns();
    data.pre_tokenizer = random.one_in(10) ? "other" : random.pick<SplitPattern>(patterns).names[0];
    for (int32_t* id : {&data.bos, &data.eos, &data.unknown, &data.pad}) {
      *id = static_cast<int32_t>(random.below(data.tokens.size() + (random.one_in(20) ? 3 : 1))) - 1;
    }
    data.add_space_prefix = random.one_in(2);
    auto tokenizer = Tokenizer::create(data);
    return {true, tokenizer.ok() ? use(data) : tokenizer.status()};
  }
};

}  // namespace

std::unique_ptr<Loader> tokenizer_loader() { return std::make_unique<TokenizerLoader>(); }

}  // namespace tessera::fuzz
