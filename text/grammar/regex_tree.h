// RegexTree: a regular expression as it is written. Plain data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "graph/base/result.h"
#include "text/grammar/character_set.h"
#include "text/grammar/json_text.h"
#include "text/grammar/source_text.h"

namespace tessera::grammar {

struct RegexNode {
  enum class Kind : uint8_t {
    kCharacters,  // one of `set`
    kSequence,    // all parts
    kChoice,      // one of them
    kRepeat,      // the part, minimum to maximum times
    kLookAhead,   // the part matches here, or not
    kStart,       // ^
    kEnd          // $
  } kind = Kind::kSequence;
  CharacterSet set;
  std::vector<uint32_t> parts;  // of the tree's nodes, before this one
  uint32_t minimum = 0, maximum = 0;
  bool is_negative = false;
  size_t begin = 0;  // byte of the source
};

struct RegexTree {
  std::vector<RegexNode> nodes;  // the last one is the whole

  const RegexNode& root() const { return nodes.back(); }
};

// Which white space \s means depends on `form` (regex_class.h). kInvalidArgument for what is no expression, kUnsupported for
// look-behind, back-references and the like; both with the byte.
Result<RegexTree> read_regex_tree(SourceText& text, TextForm form);

}  // namespace tessera::grammar
