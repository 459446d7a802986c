// Long work of the library, step by step: a line of progress, and an end at Ctrl-C.
#pragma once

#include <cmath>
#include <string>

#include "interruptible.h"
#include "progress.h"

namespace cli {

// run_steps(loading, tsr_loading_step, "loading m.tsr", interruptible, progress)
template <class H, class Step>
void run_steps(const H& work, Step step, const std::string& what, const Interruptible& interruptible,
               Progress& progress) {
  for (double done = 0; done < 1;) {
    interruptible.check(step(work.get(), &done));
    progress.show(what + "  " + std::to_string(std::lround(std::floor(100 * done))) + " %");
  }
}

}  // namespace cli
