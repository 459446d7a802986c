// RegexTree: the syntax tree of a regular expression. Plain data.
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
    kLookAhead,   // whether the part matches here
    kStart,       // ^
    kEnd          // $
  } kind = Kind::kSequence;
  CharacterSet set;
  std::vector<uint32_t> parts;  // nodes of the tree before this one
  uint32_t minimum = 0, maximum = 0;
  bool is_negative = false;
  size_t begin = 0;  // byte of the source
};

struct RegexTree {
  std::vector<RegexNode> nodes;  // root last

  const RegexNode& root() const { return nodes.back(); }
};

// `form` selects the white space of \s (regex_class.h). kInvalidArgument for syntax
// errors, kUnsupported for look-behind, back-references and the like; with the byte.
Result<RegexTree> read_regex_tree(SourceText& text, TextForm form);

}  // namespace tessera::grammar
