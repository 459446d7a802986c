#include "text/tokenizer/sentencepiece_normalizer.h"

#include <algorithm>

#include "graph/base/text.h"
#include "text/tokenizer/character.h"

namespace tessera {
namespace {

constexpr std::string_view kSpaceSymbol = "\xe2\x96\x81";  // ▁, U+2581
constexpr std::string_view kReplacement = "\xef\xbf\xbd";  // U+FFFD

}  // namespace

Result<SentencePieceNormalizer> SentencePieceNormalizer::create(const SentencePieceSettings& settings,
                                                                const UserDefinedPieces& user_defined) {
  SentencePieceNormalizer made;
  made.settings_ = &settings;
  made.user_defined_ = &user_defined;
  if (!settings.charsmap.empty()) {
    TSR_ASSIGN_OR_RETURN(made.charsmap_, Charsmap::create(settings.charsmap));
  }
  return made;
}

SentencePieceNormalizer::Prefix SentencePieceNormalizer::normalize_prefix(const Part& part, size_t at,
                                                                          const LiteralBytes& literal) const {
  const std::string_view rest = part.text.substr(at);
  const auto may_match = [&](size_t size, int32_t id) {
    const size_t begin = part.begin + at;
    return literal.is_empty() || user_defined_->is_blank(id) || !literal.overlap(begin, begin + size);
  };
  if (const size_t size = user_defined_->longest_prefix(rest, may_match); size > 0)
    return {rest.substr(0, size), size};
  if (charsmap_) {
    if (const auto found = charsmap_->find_longest(rest)) return {found->replacement, found->size};
  }
  const Character character = character_at(rest, 0);
  if (character.code < 0) return {kReplacement, 1};
  return {rest.substr(0, character.size), character.size};
}

Result<NormalizedText> SentencePieceNormalizer::normalize(const Part& part, const LiteralBytes& literal,
                                                          bool origins) const {
  NormalizedText to;
  const size_t most_bytes = 256 * part.text.size() + (size_t{1} << 20);
  const std::string_view space = settings_->escape_whitespaces ? kSpaceSymbol : " ";
  const auto put = [&](std::string_view bytes, size_t at) {
    to.text += bytes;
    if (origins) to.origins.resize(to.text.size(), part.begin + at);
  };
  const bool removes = settings_->remove_extra_whitespaces;
  size_t at = 0;
  while (removes && at < part.text.size()) {
    const Prefix prefix = normalize_prefix(part, at, literal);
    if (prefix.text != " ") break;
    at += prefix.size;
  }
  if (at == part.text.size()) return to;
  const bool each = settings_->dummy_prefix == DummyPrefix::kEachPart;
  const auto begins_with_space = [&] {
    const std::string_view first = normalize_prefix(part, at, literal).text;
    return first.starts_with(' ') || first.starts_with(kSpaceSymbol);
  };
  const bool adds_dummy = settings_->add_dummy_prefix && (each || (part.is_first && at == 0)) &&
                          !(settings_->prefix_unless_space && begins_with_space());
  if (adds_dummy && !settings_->treat_whitespace_as_suffix) put(space, at);
  for (bool after_space = removes; at < part.text.size();) {
    Prefix prefix = normalize_prefix(part, at, literal);
    while (after_space && prefix.text.starts_with(' ')) prefix.text.remove_prefix(1);
    if (!prefix.text.empty()) {
      for (const char& byte : prefix.text) put(byte == ' ' ? space : std::string_view(&byte, 1), at);
      after_space = removes && prefix.text.ends_with(' ');
    }
    at += prefix.size;
    if (to.text.size() > most_bytes)
      return Status(StatusCode::kInvalidArgument,
                    format("the tokenizer's normalizer makes a text longer than {} bytes, far longer than it "
                           "was",
                           most_bytes));
  }
  while (removes && to.text.ends_with(space)) to.text.erase(to.text.size() - space.size());
  if (adds_dummy && settings_->treat_whitespace_as_suffix) put(space, part.text.size());
  if (origins) {
    to.origins.resize(to.text.size());
    to.origins.push_back(part.begin + part.text.size());
  }
  return to;
}

}  // namespace tessera
