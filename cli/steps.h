// Long work of the library, step by step: a line of progress, and an end at Ctrl-C.
#pragma once

#include <cmath>
#include <string>

#include "interruptible.h"
#include "progress.h"

namespace cli {

// Work that takes no longer shows nothing, where nobody thinks of it as long.
constexpr double kQuietS = 0.5;

// run_steps(loading, tsr_loading_step, "loading m.tsr", interruptible, progress)
template <class H, class Step>
void run_steps(const H& work, Step step, const std::string& what, const Interruptible& interruptible,
               Progress& progress) {
  for (double done = 0; done < 1;) {
    interruptible.check(step(work.get(), &done));
    progress.show(what + "  " + std::to_string(std::lround(std::floor(100 * done))) + " %");
  }
}
// The same of work that is quiet while it is short.
template <class H, class Step>
void run_steps(const H& work, Step step, const std::string& what, const Common& common) {
  const Interruptible interruptible;
  Progress progress(common, kQuietS);
  run_steps(work, step, what, interruptible, progress);
}

}  // namespace cli
