// WorkProgress: how far long work in steps is, for people.
#pragma once

#include <cstdint>
#include <string>

namespace tessera {

struct WorkProgress {
  double fraction = 0;          // from 0 to 1; it never falls, and 1 is done
  int64_t done = 0, total = 0;  // counted in `unit`; total 0: not counted
  std::string unit;             // "bytes"
  std::string label;            // the present activity: "writing"; empty once it is done
};

}  // namespace tessera
