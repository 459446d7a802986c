// GrammarSource: the constraint of a request's texts, as its options state it. A value.
#pragma once

#include <cstdint>
#include <string>

namespace tessera {

struct GrammarSource {
  // kCalls: of tools; its text is what they depend on.
  enum class Kind : uint8_t { kNone, kJsonSchema, kJson, kRegex, kChoices, kGbnf, kCalls } kind = Kind::kNone;
  std::string text;
  auto operator<=>(const GrammarSource&) const = default;
};

}  // namespace tessera
