// ScoreWindow: a piece of a text that a model reads at once to tell how likely tokens in it are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "graph/base/result.h"

namespace tessera {

// Position i of a window predicts the token at `label` + i and reads the token before it, position 0 the BOS
// token where windows begin with one.
struct ScoreWindow {
  size_t label = 0;       // index among all tokens
  int32_t positions = 0;  // at most the window's length
  int32_t known = 0;      // the first so many labels are scored by the window before: here they are context
};

struct ScoreGrid {
  int64_t seq = 0;     // positions of a window, at most
  int64_t stride = 0;  // from a window's begin to the next; at most seq
  bool bos = false;    // windows begin with BOS, so a text's first token is predicted too
};

// Windows of texts of these lengths, one text after another. Every token but, without BOS, a text's first is
// scored exactly once, with at least seq - stride tokens before it, or all that there are. Windows begin at
// multiples of the stride, so a token's window depends on the tokens before it alone.
std::vector<ScoreWindow> make_windows(std::span<const size_t> lengths, const ScoreGrid& grid);

}  // namespace tessera
