#include "serialize/import/module_pattern.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "graph/base/cancellation.h"
#include "graph/base/quote.h"
#include "graph/base/text.h"
#include "graph/base/wildcard.h"

namespace tessera {
namespace {

constexpr std::string_view kRegexMark = "re:";
constexpr std::string_view kEmbeddings[] = {"embed_tokens", "embeddings", "embedding", "tok_embeddings", "wte", "wpe"};
constexpr size_t kMostExpressionBytes = 16 << 10, kMostPatterns = 4096;  // patterns that are not names

}  // namespace

ModulePattern module_pattern(std::string_view text) {
  if (text.starts_with(kRegexMark)) return {ModulePattern::Kind::kRegex, std::string(text.substr(kRegexMark.size()))};
  if (text == "Linear") return {ModulePattern::Kind::kLinear, std::string(text)};
  if (text == "Embedding") return {ModulePattern::Kind::kEmbedding, std::string(text)};
  return {ModulePattern::Kind::kName, std::string(text)};
}

bool is_embedding_module(std::string_view name) {
  return std::ranges::any_of(kEmbeddings, [name](std::string_view end) { return name.ends_with(end); });
}

Status ModulePatterns::add(const ModulePattern& pattern, size_t value) {
  using Kind = ModulePattern::Kind;
  Entry entry{pattern, {}, value, false};
  if (pattern.kind == Kind::kName || pattern.kind == Kind::kBeginning) {
    auto& map = pattern.kind == Kind::kName ? names_ : beginnings_;
    if (const auto [at, is_new] = map.emplace(pattern.text, std::move(entry)); !is_new && at->second.value != value)
      return Status(StatusCode::kUnsupported, format("'{}' is named twice, for different quantisations", quote(pattern.text)));
    return {};
  }
  if (others_.size() >= kMostPatterns)
    return Status(StatusCode::kInvalidArgument, format("there are more than {} patterns of modules", kMostPatterns));
  if (pattern.kind == Kind::kRegex) {
    if (pattern.text.size() > kMostExpressionBytes)
      return Status(StatusCode::kInvalidArgument, format("the pattern {} has {} bytes, wanted at most {}", quote(pattern.text),
                                                         pattern.text.size(), kMostExpressionBytes));
    TSR_ASSIGN_OR_RETURN(entry.expression, Pattern::create(format("\\A(?:{})", pattern.text)));
  }
  const auto precedence = [](const Entry& each) { return std::tie(each.pattern.kind, each.pattern.text); };
  const auto at = std::ranges::lower_bound(others_, precedence(entry), {}, precedence);
  if (at != others_.end() && precedence(*at) == precedence(entry) && at->value != value)
    return Status(StatusCode::kUnsupported, format("'{}' is named twice, for different quantisations", quote(pattern.text)));
  others_.insert(at, std::move(entry));
  return {};
}

Result<bool> ModulePatterns::matches(const Entry& entry, const std::string& module) {
  switch (entry.pattern.kind) {
    case ModulePattern::Kind::kName:
    case ModulePattern::Kind::kBeginning: return module == entry.pattern.text;
    case ModulePattern::Kind::kWildcard: return matches_wildcard(entry.pattern.text, module);
    case ModulePattern::Kind::kLinear: return !is_embedding_module(module);
    case ModulePattern::Kind::kEmbedding: return is_embedding_module(module);
    case ModulePattern::Kind::kRegex: break;
  }
  PatternSearch search(*entry.expression, module);
  const bool found = search.next();
  if (!search.status().ok()) return search.status().with_context(format("module '{}'", quote(module)));
  return found;
}

Result<std::optional<size_t>> ModulePatterns::find(const std::string& module) {
  cancellation_point();
  std::optional<size_t> value;
  const auto take = [&](Entry& entry) {
    entry.has_matched = true;
    if (value) return;
    value = entry.value;
    matched_ = (entry.pattern.kind == ModulePattern::Kind::kRegex ? std::string(kRegexMark) : std::string()) + entry.pattern.text;
  };
  if (const auto name = names_.find(module); name != names_.end()) take(name->second);
  if (!beginnings_.empty())
    for (size_t size = module.size(); size != module.npos && size > 0; size = module.rfind('.', size - 1))
      if (const auto at = beginnings_.find(std::string_view(module).substr(0, size)); at != beginnings_.end()) take(at->second);
  for (Entry& entry : others_) {
    if (value && entry.has_matched) continue;
    TSR_ASSIGN_OR_RETURN(const bool found, matches(entry, module));
    if (found) take(entry);
  }
  return value;
}

std::optional<std::string> ModulePatterns::unmatched() const {
  for (const auto* const map : {&names_, &beginnings_})
    for (const auto& [name, entry] : *map)
      if (!entry.has_matched) return name;
  for (const Entry& entry : others_)
    if (!entry.has_matched)
      return (entry.pattern.kind == ModulePattern::Kind::kRegex ? std::string(kRegexMark) : std::string()) + entry.pattern.text;
  return std::nullopt;
}

}  // namespace tessera
