// ScriptFinder: Unicode's script of a character. Immutable; any thread.
#pragma once

#include <string_view>

#include "graph/base/result.h"
#include "text/tokenizer/pattern.h"

namespace tessera {

class ScriptFinder {
 public:
  static Result<ScriptFinder> create();
  // A number that characters of one script share, -1 for those that have none: spaces, characters for private use, and
  // what Unicode 9 did not have, which `tokenizers` goes by. Kana have that of Han. `character`: its bytes.
  int find(std::string_view character, int32_t code) const;

 private:
  explicit ScriptFinder(Pattern pattern) : pattern_(std::move(pattern)) {}
  Pattern pattern_;  // one group for each script
};

}  // namespace tessera
