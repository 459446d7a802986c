#include "serialize/tokenizer/pre_tokenizer.h"

#include <algorithm>

#include "graph/base/text.h"

namespace tessera {
namespace {

// As published in the tokenizer.json of each family. Pieces between matches are kept, so a final "|\s+" is
// implied.
constexpr std::string_view kGpt2 =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr std::string_view kLlama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kTekken =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
    R"(|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kGpt4o =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kDeepSeek3 =
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kBloom = R"( ?[^(\s|.,!?…。，、।۔،)]+)";
constexpr std::string_view kCjk = R"([\x{4e00}-\x{9fa5}\x{3040}-\x{309f}\x{30a0}-\x{30ff}]+)";

}  // namespace

std::span<const SplitPattern> known_split_patterns() {
  static const std::vector<SplitPattern> kKnown = {
      {{"default"}, {R"([\p{P}\$\+<=>\^~\|]+)", kGpt2, R"(\p{N}+)", "[0-9][0-9][0-9]"}, false},
      {{"gpt-2", "phi-2", "mpt", "olmo", "jais", "trillion"}, {kGpt2}, false},
      {{"llama-bpe", "llama3", "llama-v3"}, {kLlama3}, true},
      {{"dbrx", "smaug-bpe", "chatglm-bpe", "glm4"}, {kLlama3}, false},
      {{"qwen2", "deepseek-r1-qwen", "stablelm2"}, {kQwen2}, false},
      {{"starcoder", "refact", "command-r", "smollm", "codeshell", "exaone"}, {R"(\p{N})", kGpt2}, false},
      {{"falcon"}, {R"([\p{P}\$\+<=>\^~\|`]+)", kGpt2, "[0-9][0-9][0-9]"}, false},
      {{"deepseek-coder"},
       {R"([\r\n])", R"(\s?\p{L}+)", R"(\s?\p{P}+)",
        R"([\x{4e00}-\x{9fa5}\x{0800}-\x{4e00}\x{ac00}-\x{d7ff}]+)", R"(\p{N})"},
       false},
      {{"deepseek-v3"}, {R"(\p{N}{1,3})", kCjk, kDeepSeek3}, false},
      {{"tekken"}, {kTekken}, true},
      {{"gpt-4o"}, {kGpt4o}, false},
      {{"bloom", "poro-chat", "gpt3-finnish"}, {kBloom}, false},
      {{"viking"}, {kBloom, R"(\p{N})"}, false},
  };
  return kKnown;
}

PreTokenizer::PreTokenizer() = default;
PreTokenizer::~PreTokenizer() = default;

Result<std::unique_ptr<const PreTokenizer>> PreTokenizer::create(std::string_view name) {
  if (name.empty()) name = "default";
  const SplitPattern* found = nullptr;
  std::vector<std::string> known;
  for (const SplitPattern& split : known_split_patterns()) {
    for (std::string_view candidate : split.names) {
      if (candidate == name) found = &split;
      known.emplace_back(candidate);
    }
  }
  if (found == nullptr) {
    std::ranges::sort(known);
    return Status(StatusCode::kUnsupported, format("pre-tokenizer '{}' is not known; known: {}",
                                                   name.substr(0, 64), join(known, ", ")));
  }
  auto result = std::unique_ptr<PreTokenizer>(new PreTokenizer);
  result->whole_words_first_ = found->whole_words_first;
  for (std::string_view expression : found->patterns) {
    TSR_ASSIGN_OR_RETURN(Pattern pattern, Pattern::create(expression));
    result->patterns_.push_back(std::move(pattern));
  }
  return std::unique_ptr<const PreTokenizer>(std::move(result));
}

Status PreTokenizer::split(std::string_view text, const std::function<void(std::string_view)>& word) const {
  return split_by(patterns_, text, word);
}

Status PreTokenizer::split_by(std::span<const Pattern> patterns, std::string_view text,
                              const std::function<void(std::string_view)>& word) {
  if (text.empty()) return {};
  if (patterns.empty()) {
    word(text);
    return {};
  }
  size_t position = 0;
  PatternSearch search(patterns[0], text);
  const auto put = [&](size_t begin, size_t end) {
    return split_by(patterns.subspan(1), text.substr(begin, end - begin), word);
  };
  while (search.next()) {
    TSR_RETURN_IF_ERROR(put(position, search.begin()));
    TSR_RETURN_IF_ERROR(put(search.begin(), search.end()));
    position = search.end();
  }
  TSR_RETURN_IF_ERROR(search.status());
  return put(position, text.size());
}

}  // namespace tessera
