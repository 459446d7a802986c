#include "progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <iostream>

namespace cli {

namespace {

constexpr double kLongestPause_s = 60;

bool is_terminal() { return isatty(STDERR_FILENO) == 1; }

// A longer line would wrap, and its first part could not be overwritten.
size_t terminal_columns() {
  winsize size{};
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

}  // namespace

void add_quiet(CLI::App& command, Common& common) {
  command.add_flag(
      "--quiet", common.quiet,
      "only errors and warnings on stderr (with --json they show on a terminal only)");
}

bool is_quiet(const Common& common) { return common.quiet || (common.json && !is_terminal()); }

Progress::Progress(const Common& common, double quiet_s)
    : quiet_(is_quiet(common)), terminal_(is_terminal()), quiet_s_(quiet_s) {}

Progress::~Progress() {
  if (shown_) std::cerr << '\n';
}

void Progress::show(const std::string& line) {
  if (quiet_) return;
  const Clock::time_point now = Clock::now();
  if (std::chrono::duration<double>(now - begin_).count() < quiet_s_) return;
  if (terminal_) {
    std::cerr << '\r' << line.substr(0, terminal_columns() - 1) << "\x1b[K" << std::flush;
    shown_ = true;
    return;
  }
  if (std::chrono::duration<double>(now - last_).count() < pause_s_) return;
  std::cerr << line << std::endl;
  last_ = now;
  pause_s_ = std::min(2 * pause_s_, kLongestPause_s);
}

void Progress::say(const std::string& line) {
  if (quiet_) return;
  std::cerr << (terminal_ ? "\r\x1b[K" : "") << line << std::endl;
  shown_ = false;
}

}  // namespace cli
