// Progress of long work on stderr. A terminal has one line
// that is overwritten; other outputs get a line now and then.
#pragma once

#include <chrono>
#include <string>

#include "command.h"

namespace cli {

void add_quiet(CLI::App& command, Common& common);  // --quiet

// Returns whether progress and notes are off: --quiet, or --json where stderr is no terminal.
bool is_quiet(const Common& common);

class Progress {
 public:
  // `quiet_s`: shorter work shows nothing.
  explicit Progress(const Common& common, double quiet_s = 0);
  ~Progress();  // ends the line of a terminal
  // Shows the current state. A terminal shows every line, a file the first
  // after two seconds, then after pauses that double up to a minute.
  void show(const std::string& line);
  // Prints a line that stays, at once.
  void say(const std::string& line);

 private:
  using Clock = std::chrono::steady_clock;

  const bool quiet_, terminal_;
  const double quiet_s_;
  bool shown_ = false;
  double pause_s_ = 2;
  const Clock::time_point begin_ = Clock::now();
  Clock::time_point last_ = begin_;
};

}  // namespace cli
