#include "kernel_times.h"

#include <cstdio>

namespace cli {

Json kernel_times(const std::string& trace, const std::string& entry, const Ceilings& ceilings) {
  const Options options = make<Options>(tsr_options_new);
  set(options, "entry", entry);
  set(options, "bytes_per_s", ceilings.bytes_per_s);
  set(options, "flops_per_s", ceilings.flops_per_s);
  return Json::parse(text(tsr_trace_kernels, trace.data(), trace.size(), static_cast<const tsr_options*>(options.get())));
}

double product_seconds(const Json& times) {
  double seconds = 0;
  for (const Json& kernel : times["kernels"])
    // By name: a report's kernels have it alone.
    if (kernel["op"].get<std::string>().find("matmul") != std::string::npos)
      seconds += kernel["seconds"].get<double>();
  return seconds;
}

std::string kernel_table(const Json& times, size_t rows) {
  const double total = times["seconds"];
  std::string table;
  char line[256];
  const auto add = [&](int64_t count, double seconds, double floor_s, const std::string& what) {
    std::snprintf(line, sizeof line, "%5lld %10.1f us %10.1f us %4.0f %% %5.1f %%  %s\n",
                  static_cast<long long>(count), seconds * 1e6, floor_s * 1e6,
                  seconds > 0 ? 100 * floor_s / seconds : 0, total > 0 ? 100 * seconds / total : 0,
                  what.c_str());
    table += line;
  };
  table += "count         time         floor  reach   share  kernel of " + times["entry"].get<std::string>() +
           '\n';
  size_t shown = 0;
  int64_t other_count = 0;
  double other_s = 0, other_floor_s = 0;
  for (const Json& kernel : times["kernels"]) {
    if (shown++ < rows) {
      const std::string variant = kernel["variant"];
      add(kernel["count"], kernel["seconds"], kernel["floor_seconds"],
          kernel["op"].get<std::string>() + (variant.empty() ? "" : " (" + variant + ")") + " " +
              kernel["operands"].get<std::string>().substr(0, 44));
      continue;
    }
    other_count += kernel["count"].get<int64_t>();
    other_s += kernel["seconds"].get<double>();
    other_floor_s += kernel["floor_seconds"].get<double>();
  }
  if (other_count > 0) add(other_count, other_s, other_floor_s, "others");
  add(times["launches"], total, times["floor_seconds"], "all (count: launches)");
  return table;
}

}  // namespace cli
