// Long work of the library, step by step: a line of progress, and an end at Ctrl-C.
#pragma once

#include <chrono>
#include <cmath>
#include <string>

#include "interruptible.h"
#include "plan_text.h"
#include "progress.h"

namespace cli {

// Work that is usually short: no progress line before this time.
constexpr double kQuietS = 0.5;

inline tsr_progress progress_of(const Work& work) {
  tsr_progress found{};
  found.struct_size = sizeof found;
  check(tsr_work_progress(work.get(), &found));
  return found;
}

// run_steps(work, "loading m.tsr", interruptible, progress)
inline void run_steps(const Work& work, const std::string& what, const Interruptible& interruptible,
                      Progress& progress) {
  for (int32_t done = 0; done == 0;) {
    interruptible.check(tsr_work_step(work.get(), &done));
    const double share = progress_of(work).fraction;
    progress.show(what + "  " + std::to_string(std::lround(std::floor(100 * share))) + " %");
  }
}
// The same for work that is quiet while short.
inline void run_steps(const Work& work, const std::string& what, const Common& common) {
  const Interruptible interruptible;
  Progress progress(common, kQuietS);
  run_steps(work, what, interruptible, progress);
}
// The same for steps that report a share of 1, with the remaining time: "scored 40 % of 1200 tokens, 3 s left".
template <class H, class Step>
void run_steps_with_eta(const H& work, Step step, const std::string& done_text, const std::string& amount,
                    const Interruptible& interruptible, const Common& common) {
  Progress progress(common);
  const auto begin = std::chrono::steady_clock::now();
  for (double done = 0; done < 1;) {
    interruptible.check(step(work.get(), &done));
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    progress.show(done_text + " " + std::to_string(static_cast<int>(100 * done)) + " % of " + amount +
                  (done > 0 ? ", " + seconds_text(seconds / done * (1 - done)) + " left" : ""));
  }
}

}  // namespace cli
