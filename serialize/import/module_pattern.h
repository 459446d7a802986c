// ModulePatterns: which of several values a module of a quantised model takes, by patterns of its name.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "graph/base/result.h"
#include "text/tokenizer/pattern.h"

namespace tessera {

// ModulePattern: one pattern. Names are compared with those of the file: "model.layers.0.mlp.up_proj".
struct ModulePattern {
  enum class Kind : uint8_t {
    kName,       // the whole name
    kBeginning,  // the whole name, or one of the modules around it
    kWildcard,   // '*' stands for any characters
    kRegex,      // from the name's first character, as Python's re.match
    kLinear,     // every module but embeddings
    kEmbedding,
  } kind = Kind::kName;
  std::string text;
};

// As compressed-tensors reads one: "re:EXPRESSION", the class "Linear" or "Embedding", or a name.
ModulePattern module_pattern(std::string_view text);

// Embeddings of the known classes.
bool is_embedding_module(std::string_view name);

class ModulePatterns {
 public:
  // kInvalidArgument for an expression that does not compile, or is too long.
  Status add(const ModulePattern& pattern, size_t value);

  // The value of the first pattern that matches: names first, then beginnings (the longest), wildcards, expressions in alphabetical
  // order, and classes. kInvalidArgument for an expression that takes too many steps. Not for several threads.
  Result<std::optional<size_t>> find(const std::string& module);

  // The first pattern that no module has matched so far.
  std::optional<std::string> unmatched() const;
  // The pattern that matched last, for messages.
  const std::string& matched() const { return matched_; }

 private:
  struct Entry {
    ModulePattern pattern;
    std::optional<Pattern> expression;
    size_t value = 0;
    bool has_matched = false;
  };
  static Result<bool> matches(const Entry& entry, const std::string& module);

  std::map<std::string, Entry, std::less<>> names_, beginnings_;
  std::vector<Entry> others_;  // in the order of precedence
  std::string matched_;
};

}  // namespace tessera
