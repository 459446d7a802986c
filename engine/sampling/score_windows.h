// ScoreWindow: a piece of a text that is scored at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "graph/base/result.h"

namespace tessera {

// Position i of a window predicts token `label` + i from the token
// before it; position 0 reads the BOS token if windows begin with one.
struct ScoreWindow {
  size_t label = 0;       // index among all tokens
  int32_t positions = 0;  // at most the window's length
  int32_t known = 0;      // labels scored by the window before; here they are context
};

struct ScoreGrid {
  int64_t seq = 0;     // positions of a window, at most
  int64_t stride = 0;  // from a window's begin to the next; at most seq
  bool bos = false;    // windows begin with BOS, so a text's first token is predicted too
};

// Windows of texts of these lengths, in order. Every token is scored exactly once, except
// a text's first without BOS, with at least seq - stride tokens of context or all there
// are. Windows begin at multiples of the stride, so they depend only on the tokens before.
std::vector<ScoreWindow> make_windows(std::span<const size_t> lengths, const ScoreGrid& grid);

}  // namespace tessera
