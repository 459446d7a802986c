#include "engine/base/cpu_load.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

#include "engine/base/text_file.h"
#include "graph/base/text.h"

namespace tessera {

namespace {

// Columns of a core's line after its name: user, nice, system,
// idle, iowait, irq, softirq, steal, guest, guest_nice.
constexpr size_t kIdle = 3, kIowait = 4, kGuest = 8;  // user includes the guests' time

double seconds_of(const timeval& time) {
  return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
}

}  // namespace

std::optional<double> busy_seconds(std::string_view stat, const cpu_set_t& cores, double ticks_per_s) {
  double ticks = 0;
  int found = 0;
  for (const std::string& line : split(stat, '\n')) {
    if (!line.starts_with("cpu")) continue;
    const std::vector<std::string> words = split(line, ' ');
    const std::optional<int64_t> core = parse_i64(words[0].substr(3));
    if (!core || *core < 0 || *core >= CPU_SETSIZE || !CPU_ISSET(static_cast<size_t>(*core), &cores))
      continue;
    ++found;
    for (size_t column = 0; column + 1 < words.size() && column < kGuest; ++column)
      if (column != kIdle && column != kIowait) ticks += parse_f64(words[column + 1]).value_or(0);
  }
  if (found == 0 || found != CPU_COUNT(&cores)) return std::nullopt;
  return ticks / ticks_per_s;
}

std::optional<CpuLoad> read_cpu_load() {
  cpu_set_t cores;
  if (sched_getaffinity(0, sizeof cores, &cores) != 0) return std::nullopt;
  const Result<std::string> stat = read_text_file("/proc/stat", "counters", size_t{64} << 20);
  if (!stat.ok()) return std::nullopt;
  const std::optional<double> busy = busy_seconds(*stat, cores, static_cast<double>(sysconf(_SC_CLK_TCK)));
  rusage own{};
  if (!busy || getrusage(RUSAGE_SELF, &own) != 0) return std::nullopt;
  const auto clock = std::chrono::steady_clock::now().time_since_epoch();
  return CpuLoad{*busy, seconds_of(own.ru_utime) + seconds_of(own.ru_stime),
                 std::chrono::duration<double>(clock).count(), CPU_COUNT(&cores)};
}

double share_of_others(const CpuLoad& before, const CpuLoad& after) {
  const double all_s = (after.clock_s - before.clock_s) * after.cores;
  if (!(all_s > 0)) return 0;
  const double others_s = (after.busy_s - before.busy_s) - (after.own_s - before.own_s);
  return std::clamp(others_s / all_s, 0.0, 1.0);
}

}  // namespace tessera
