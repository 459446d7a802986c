// ScriptFinder: Unicode's script of a character. Immutable; any thread.
#pragma once

#include <string_view>

#include "graph/base/result.h"
#include "text/tokenizer/pattern.h"

namespace tessera {

class ScriptFinder {
 public:
  static Result<ScriptFinder> create();
  // The number of a character's script; -1 for spaces, private use, and characters
  // after Unicode 9, which `tokenizers` uses. Kana share Han's. `character`: its bytes.
  int find(std::string_view character, int32_t code) const;

 private:
  explicit ScriptFinder(Pattern pattern) : pattern_(std::move(pattern)) {}
  Pattern pattern_;  // one group for each script
};

}  // namespace tessera
