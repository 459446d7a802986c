// CpuLoad: how much of the cores that this process may run on others take, from the system's counters.
#pragma once

#include <sched.h>

#include <optional>
#include <string_view>

namespace tessera {

// Counters since some moments of their own: only differences mean something.
struct CpuLoad {
  double busy_s = 0;  // of those cores, by all processes
  double own_s = 0;   // of this process on any core
  double clock_s = 0;
  int cores = 0;
};

// Nothing where the system does not tell.
std::optional<CpuLoad> read_cpu_load();

// Busy seconds of `cores` in the text of /proc/stat, whose unit is 1 / ticks_per_s; nothing where one is
// missing.
std::optional<double> busy_seconds(std::string_view stat, const cpu_set_t& cores, double ticks_per_s);

// Share of the cores' time that others took between the two, from 0 to 1.
double share_of_others(const CpuLoad& before, const CpuLoad& after);

}  // namespace tessera
