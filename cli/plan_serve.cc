#include "plan_serve.h"

#include <algorithm>
#include <cmath>
#include <iostream>
#include <optional>
#include <vector>

#include "interruptible.h"
#include "plan_text.h"

namespace cli {

namespace {

constexpr int64_t kPage = 64, kMostSequences = 4096;

int64_t pages_of(int64_t tokens) { return (tokens + kPage - 1) / kPage; }

// "512MiB", "8 GB": as the library, which has accepted it, reads it.
int64_t bytes_of(const std::string& text) {
  struct Unit {
    const char* suffix;
    double bytes;
  };
  static constexpr Unit kUnits[] = {{"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30}, {"TiB", 0x1p40},
                                    {"kB", 1e3},     {"KB", 1e3},     {"MB", 1e6},     {"GB", 1e9},
                                    {"TB", 1e12},    {"K", 0x1p10},   {"M", 0x1p20},   {"G", 0x1p30}};
  size_t end = 0;
  const double number = std::stod(text, &end);
  for (const Unit& unit : kUnits)
    if (text.find(unit.suffix, end) != std::string::npos) return static_cast<int64_t>(number * unit.bytes);
  return static_cast<int64_t>(number);
}

// An engine whose replicas' caches hold few tokens, so that it can be made for its report. It is kept: weights in an order
// of their own are then made once for all.
struct SmallEngine {
  Engine engine;
  Json report;
  std::vector<int64_t> bytes;  // of each device
};

// PoolPages: pages of a replica, for layers that see the whole context and for those with a window; window pages are 0
// where these share the former.
struct PoolPages {
  int64_t full = 0, window = 0;
};

SmallEngine small_engine(const ServePlan& plan, int64_t sequences, PoolPages pages, int64_t replicas) {
  const Options options = plan.options();
  Serving serving = plan.serving;
  serving.sequences = sequences;
  serving.cache_tokens = replicas * pages.full * kPage;
  serving.window_cache_tokens.reset();
  if (pages.window > 0) serving.window_cache_tokens = replicas * pages.window * kPage;
  set_serving(options, serving);
  SmallEngine made;
  made.engine = make_interruptible<Engine>(tsr_engine_new, plan.runtime, plan.model.get(),
                                           static_cast<const tsr_options*>(options.get()));
  made.report = Json::parse(text(tsr_engine_report, made.engine.get()));
  for (const Json& device : made.report["plan"]["devices"])
    made.bytes.push_back(device["arena_bytes"]["predicted"].get<int64_t>());
  return made;
}

// WindowPages: a replica's window pages, as engines choose them by tessera.h.
struct WindowPages {
  int64_t window = 0, step_tokens = 0, sequences = 0;
  std::optional<int64_t> given;

  int64_t of_step() const { return pages_of(std::max(step_tokens, sequences)); }
  int64_t usual() const { return 2 * sequences * (pages_of(window) + 1) + of_step(); }
  bool is_used(int64_t pages) const { return window > 0 && (given || usual() < pages); }
  // Window pages that a sequence needs, among so many sequences.
  int64_t least(int64_t of_sequences) const {
    return pages_of(std::max<int64_t>(window, 2) + std::max(step_tokens, of_sequences) - 2) + 2;
  }
  // Window pages with `pages` of `most` in the first pool.
  int64_t with(int64_t pages, int64_t most) const {
    if (!is_used(most)) return 0;
    if (given) return std::min(*given, pages);
    const int64_t share = (usual() * pages + most - 1) / most;
    return std::clamp(share, std::min(least(sequences), pages), pages);
  }
};

// ServingBytes: memory of a replica's engine of any size, measured on small ones.
struct ServingBytes {
  SmallEngine base;
  PoolPages pages;                          // of `base`
  std::vector<int64_t> of_full, of_window;  // by device, a page of either pool
  std::vector<double> of_sequence;

  int64_t predicted(size_t device, PoolPages of) const {
    return base.bytes[device] + (of.full - pages.full) * of_full[device] +
           (of.window - pages.window) * of_window[device];
  }
};

// Measures small engines: bytes grow by the same amount with each page of either pool, and with each sequence.
ServingBytes measure_bytes(const ServePlan& plan, int64_t asked, int64_t replicas, int64_t sequences,
                           int64_t further, int64_t window_pages) {
  ServingBytes bytes;
  bytes.pages = {std::max<int64_t>(window_pages, 1), window_pages};
  PoolPages more = bytes.pages;
  bytes.base = small_engine(plan, asked, more, replicas);
  const size_t devices = bytes.base.bytes.size();
  ++more.full;
  std::vector<int64_t> last = small_engine(plan, asked, more, replicas).bytes;
  for (size_t i = 0; i < devices; ++i) bytes.of_full.push_back(last[i] - bytes.base.bytes[i]);
  bytes.of_window.assign(devices, 0);
  if (window_pages > 0) {
    ++more.window;
    const std::vector<int64_t> wide = small_engine(plan, asked, more, replicas).bytes;
    for (size_t i = 0; i < devices; ++i) bytes.of_window[i] = wide[i] - last[i];
  }
  bytes.of_sequence.assign(devices, 0);
  if (further == 0) return bytes;
  last = small_engine(plan, (sequences + further) * replicas, bytes.pages, replicas).bytes;
  for (size_t i = 0; i < devices; ++i)
    bytes.of_sequence[i] = static_cast<double>(last[i] - bytes.base.bytes[i]) / static_cast<double>(further);
  return bytes;
}

std::vector<int64_t> limits_of(const ServePlan& plan, size_t devices) {
  if (!plan.memory_limit.empty()) return std::vector<int64_t>(devices, bytes_of(plan.memory_limit));
  const Devices opened = make<Devices>(tsr_devices_open, plan.runtime.get(), plan.devices.c_str());
  const Json info = Json::parse(text(tsr_devices_info, static_cast<const tsr_devices*>(opened.get())));
  std::vector<int64_t> limits;
  for (const Json& device : info["devices"]) limits.push_back(device["memory_bytes"].get<int64_t>());
  return limits;
}

}  // namespace

// Sequences and pages count for one replica, until the result.
Json plan_serve(const ServePlan& plan) {
  const int64_t asked = plan.serving.sequences.value_or(16);
  const auto divided = [](int64_t whole, int64_t parts) { return (whole + parts - 1) / parts; };
  const SmallEngine made = small_engine(plan, asked, {1, 0}, 1);
  const Json& first = made.report;
  const auto replicas = first["replicas"].get<int64_t>(), context = first["context"].get<int64_t>();
  const int64_t sequences = first["sequences"].get<int64_t>() / replicas;
  const int64_t further = std::min(sequences, kMostSequences / replicas - sequences);
  WindowPages windows{first["window"].get<int64_t>(), plan.serving.step_tokens.value_or(256), sequences, {}};
  if (plan.serving.window_cache_tokens.value_or(0) > 0)
    windows.given = divided(pages_of(*plan.serving.window_cache_tokens), replicas);
  const int64_t columns = pages_of(context);
  const int64_t most = plan.serving.cache_tokens ? divided(pages_of(*plan.serving.cache_tokens), replicas)
                                                 : sequences * columns;
  // The engine's own message says what is wrong.
  if (const int64_t least = std::min(windows.least(sequences), most);
      windows.given && (windows.window == 0 || *windows.given < least))
    small_engine(plan, asked, {least, std::min(*windows.given, least)}, replicas);
  const ServingBytes bytes = measure_bytes(plan, asked, replicas, sequences, further,
                                           windows.is_used(most) ? windows.least(sequences + further) : 0);
  const size_t count = bytes.base.bytes.size();
  const std::vector<int64_t> limits = limits_of(plan, count);
  const bool has_full = std::ranges::any_of(bytes.of_full, [](int64_t page) { return page > 0; });
  // Bytes by the pages that are chosen: window pages where there are no others.
  const auto with = [&](int64_t pages) {
    return has_full ? PoolPages{pages, windows.with(pages, most)} : PoolPages{most, pages};
  };
  int64_t chosen = has_full ? most : windows.with(most, most);
  // Engines then take what a limit leaves room for, one context at least.
  if (!plan.memory_limit.empty() && !plan.serving.cache_tokens && (has_full || !windows.given)) {
    int64_t fitting = has_full ? columns : std::min(windows.least(sequences), most);
    for (int64_t too_many = chosen + 1; fitting + 1 < too_many;) {
      const int64_t middle = fitting + (too_many - fitting) / 2;
      bool fits = true;
      for (size_t i = 0; i < count; ++i) fits = fits && bytes.predicted(i, with(middle)) <= limits[i];
      (fits ? fitting : too_many) = middle;
    }
    chosen = fitting;
  }
  const PoolPages pages = with(chosen);
  Json devices = Json::array();
  int64_t token_bytes = 0, window_bytes = 0, fitting = kMostSequences / replicas;
  for (size_t i = 0; i < count; ++i) {
    const int64_t predicted = bytes.predicted(i, pages);
    token_bytes += bytes.of_full[i] / kPage;
    window_bytes += bytes.of_window[i] / kPage;
    devices.push_back({{"name", bytes.base.report["plan"]["devices"][i]["name"]},
                       {"arena_bytes", {{"predicted", predicted}}},
                       {"limit_bytes", limits[i]},
                       {"fits", predicted <= limits[i]}});
    // Bytes of whole contexts, besides those needed for none.
    const int64_t of_windows = windows.given ? 0 : 2 * (pages_of(windows.window) + 1) * bytes.of_window[i];
    const int64_t for_none = windows.given ? *windows.given : windows.of_step();
    const double of_sequence = bytes.of_sequence[i];
    const double of_context = static_cast<double>(columns * bytes.of_full[i] + of_windows) + of_sequence;
    const double fixed = static_cast<double>(bytes.predicted(i, {0, pages.window > 0 ? for_none : 0})) -
                         static_cast<double>(sequences) * of_sequence;
    if (of_context > 0)
      fitting = std::min(fitting, static_cast<int64_t>(
                                      std::max(0.0, (static_cast<double>(limits[i]) - fixed) / of_context)));
  }
  Json result = {{"mode", "serve"},
                 {"plan", bytes.base.report["plan"]["strategy"]},
                 {"replicas", replicas},
                 {"context", context},
                 {"sequences", replicas * sequences},
                 {"cache_tokens", replicas * pages.full * kPage},
                 {"cache_bytes_per_token", token_bytes / replicas},
                 {"cache_bytes", pages.full * kPage * token_bytes + pages.window * kPage * window_bytes}};
  if (pages.window > 0) {
    result["window"] = windows.window;
    result["window_cache_tokens"] = replicas * pages.window * kPage;
    result["window_bytes_per_token"] = window_bytes / replicas;
  }
  int64_t weights = 0, copied = 0;
  for (const Json& device : bytes.base.report["devices"]) {
    weights += device.value("shared_weight_bytes", int64_t{0});
    copied += device.value("copied_weight_bytes", int64_t{0});
  }
  if (weights > 0) {
    result["weight_bytes"] = weights / replicas;  // which share them
    result["copied_weight_bytes"] = copied / replicas;
  }
  result["sequences_that_fit"] = replicas * fitting;
  result["devices"] = std::move(devices);
  return result;
}

void print_serve_plan(const Json& result) {
  const auto number = [&](const char* key) { return result[key].get<int64_t>(); };
  std::cout << "plan       " << result["plan"].get<std::string>();
  if (number("replicas") > 1) std::cout << " in each of " << counted(number("replicas"), "replica");
  std::cout << '\n'
            << "sequences  " << number("sequences") << " at once, of at most "
            << counted(number("context"), "token") << "; " << number("sequences_that_fit")
            << " of that length fit the memory\n"
            << "cache      " << counted(number("cache_tokens"), "token") << " of "
            << bytes_text(number("cache_bytes_per_token"));
  if (result.contains("window"))
    std::cout << ", and " << counted(number("window_cache_tokens"), "token") << " of "
              << bytes_text(number("window_bytes_per_token")) << " in layers with a window of "
              << number("window");
  std::cout << ": " << bytes_text(number("cache_bytes")) << '\n';
  if (result.contains("weight_bytes"))
    std::cout << "weights    " << bytes_text(number("weight_bytes")) << ", "
              << bytes_text(number("copied_weight_bytes"))
              << " of them in copies made for kernels, the others where the model has them\n";
  for (const Json& device : result["devices"])
    std::cout << "memory     " << device["name"].get<std::string>() << "  "
              << bytes_text(device["arena_bytes"]["predicted"]) << " of " << bytes_text(device["limit_bytes"])
              << (device["fits"].get<bool>() ? "" : ": too much") << '\n';
}

}  // namespace cli
