// Progress of long work on stderr. A terminal sees one line that is overwritten; anything else a line now and
// then.
#pragma once

#include <chrono>
#include <string>

#include "command.h"

namespace cli {

void add_quiet(CLI::App& command, Common& common);  // --quiet

// Whether progress and notes are unwanted: --quiet, and --json where stderr is no terminal.
bool is_quiet(const Common& common);

class Progress {
 public:
  explicit Progress(const Common& common);
  ~Progress();  // ends the line of a terminal
  // The present state. A terminal shows every line, a file the first after two seconds, then after pauses
  // that double up to a minute.
  void show(const std::string& line);

 private:
  using Clock = std::chrono::steady_clock;

  const bool quiet_, terminal_;
  bool shown_ = false;
  double pause_s_ = 2;
  Clock::time_point last_ = Clock::now();
};

}  // namespace cli
