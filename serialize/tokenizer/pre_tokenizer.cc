#define PCRE2_CODE_UNIT_WIDTH 8
#include "serialize/tokenizer/pre_tokenizer.h"

#include <pcre2.h>

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

// Unicode's White_Space. PCRE2's \s also has the Mongolian vowel separator (U+180E), which Unicode 6.3
// removed, and which no other engine of these patterns matches.
constexpr std::string_view kWhiteSpace =
    R"(\t-\r\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";

// \s and \S spelled out, within [] and without. No pattern has \S within.
std::string with_white_space(std::string_view pattern) {
  std::string result;
  bool within = false;
  for (size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] == '\\' && i + 1 < pattern.size()) {
      const char escaped = pattern[++i];
      if (escaped == 's' && within)
        result += kWhiteSpace;
      else if (escaped == 's' || escaped == 'S')
        result += format("[{}{}]", escaped == 's' ? "" : "^", kWhiteSpace);
      else
        result += {'\\', escaped};
      continue;
    }
    within = pattern[i] == '[' || (within && pattern[i] != ']');
    result += pattern[i];
  }
  return result;
}

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

struct PreTokenizer::CompiledPattern {
  struct Free {
    void operator()(pcre2_code* code) const { pcre2_code_free(code); }
  };
  std::unique_ptr<pcre2_code, Free> code;
};

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
  for (std::string_view as_published : found->patterns) {
    const std::string pattern = with_white_space(as_published);
    int error = 0;
    PCRE2_SIZE offset = 0;
    // Invalid UTF-8 never matches and so becomes pieces of its own: no byte of the text is lost.
    pcre2_code* code =
        pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                      PCRE2_UTF | PCRE2_UCP | PCRE2_MATCH_INVALID_UTF, &error, &offset, nullptr);
    TSR_CHECK(code != nullptr, "a built-in pattern does not compile");
    (void)pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);  // where there is no JIT the interpreter serves
    result->compiled_.emplace_back().code.reset(code);
  }
  return std::unique_ptr<const PreTokenizer>(std::move(result));
}

std::vector<std::string_view> PreTokenizer::split(std::string_view text) const {
  std::vector<std::string_view> pieces, next;
  if (!text.empty()) pieces.push_back(text);
  for (const CompiledPattern& compiled : compiled_) {
    std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)> match(
        pcre2_match_data_create_from_pattern(compiled.code.get(), nullptr), &pcre2_match_data_free);
    if (match == nullptr) throw std::bad_alloc();
    next.clear();
    for (std::string_view piece : pieces) {
      size_t position = 0;
      auto subject = reinterpret_cast<PCRE2_SPTR>(piece.data());
      while (position < piece.size()) {
        int found =
            pcre2_match(compiled.code.get(), subject, piece.size(), position, 0, match.get(), nullptr);
        if (found == PCRE2_ERROR_JIT_STACKLIMIT) {  // the interpreter keeps its stack on the heap
          found = pcre2_match(compiled.code.get(), subject, piece.size(), position, PCRE2_NO_JIT, match.get(),
                              nullptr);
        }
        if (found < 0) break;
        const PCRE2_SIZE* range = pcre2_get_ovector_pointer(match.get());
        if (range[1] <= range[0]) break;  // no pattern of the table matches nothing
        if (range[0] > position) next.push_back(piece.substr(position, range[0] - position));
        next.push_back(piece.substr(range[0], range[1] - range[0]));
        position = range[1];
      }
      if (position < piece.size()) next.push_back(piece.substr(position));
    }
    pieces.swap(next);
  }
  return pieces;
}

}  // namespace tessera
