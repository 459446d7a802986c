// WrittenState: the progress of a file or folder written in steps.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "graph/base/result.h"
#include "graph/base/text.h"

namespace tessera {

struct WrittenState {
  bool is_finished = false, is_ready = false;
  bool is_broken = false;  // a step failed for good
  double done = 0;         // share of the work
};

// kFailedPrecondition, naming `out`, unless everything is written and not finished yet. `work`: "conversion".
inline Status check_can_finish(const std::string& out, std::string_view work, const WrittenState& state) {
  const auto refused = [&](const std::string& reason) {
    return Status(StatusCode::kFailedPrecondition, format("{}: {}", out, reason));
  };
  if (state.is_finished) return refused("is written already, by an earlier finish");
  if (state.is_broken) return refused(format("the {} failed before; begin another", work));
  if (!state.is_ready)
    return refused(format("{} % are written: step until 1 is done", static_cast<int64_t>(100 * state.done)));
  return {};
}

}  // namespace tessera
