// A mixture run through the C API: trained, held against one device, and saved and resumed under another.
#pragma once

#include <string>
#include <vector>

#include "tests/mixtures/job.h"

namespace mixtures {

struct Attempt {
  Layout layout;
  std::vector<Layout> others;  // where it is resumed: the first of them that is not refused; none: nowhere
  bool limited = false;        // memory, to a part of what the plan takes without a limit
  std::string fused_loss = "auto";
};

struct Verdict {
  enum Kind { kEqual, kWrong, kRefused } kind = kEqual;
  std::string what;      // why it was refused, what failed, or what differs and by how much
  double deviation = 0;  // the largest, as a part of what is allowed
  std::string resumed;   // the words that it was resumed under, with the devices
};

// Tolerance of a value against one device's, relative to the largest of its tensor. Sums of some hundred f32 in
// another order are off by 1e-7 to 1e-5 of the largest; a value that is left out, added twice or read from
// another place, by 1e-2 and more.
double allowed(Rounding rounding);

Verdict run(tsr_runtime* runtime, Job& job, const Attempt& attempt);

}  // namespace mixtures
