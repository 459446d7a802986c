// CpuLoad: the load of other processes on the cores available to this one, from the system's counters.
#pragma once

#include <sched.h>

#include <optional>
#include <string_view>

namespace tessera {

// Counters since unspecified moments; only differences are meaningful.
struct CpuLoad {
  double busy_s = 0;  // of those cores, by all processes
  double own_s = 0;   // of this process on any core
  double clock_s = 0;
  int cores = 0;
};

// nullopt if the system does not report it.
std::optional<CpuLoad> read_cpu_load();

// Busy seconds of `cores` in the text of /proc/stat, whose
// unit is 1 / ticks_per_s; nullopt if a core is missing.
std::optional<double> busy_seconds(std::string_view stat, const cpu_set_t& cores, double ticks_per_s);

// Share of the cores' time used by others between the two readings, 0 to 1.
double share_of_others(const CpuLoad& before, const CpuLoad& after);

}  // namespace tessera
