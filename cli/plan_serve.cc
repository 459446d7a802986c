#include "plan_serve.h"

#include <algorithm>
#include <cmath>
#include <iostream>
#include <vector>

#include "interruptible.h"
#include "plan_text.h"

namespace cli {

namespace {

constexpr int64_t kPage = 64, kMostSequences = 4096;

int64_t whole_pages(int64_t tokens) { return (tokens + kPage - 1) / kPage * kPage; }

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

SmallEngine small_engine(const ServePlan& plan, int64_t sequences, int64_t tokens) {
  const Options options = plan.options();
  set_serving(options, plan.serving);
  set(options, "sequences", sequences);
  set(options, "cache_tokens", tokens);
  SmallEngine made;
  made.engine = make_interruptible<Engine>(tsr_engine_new, plan.runtime, plan.model.get(),
                                           static_cast<const tsr_options*>(options.get()));
  made.report = Json::parse(text(tsr_engine_report, made.engine.get()));
  for (const Json& device : made.report["plan"]["devices"])
    made.bytes.push_back(device["arena_bytes"]["predicted"].get<int64_t>());
  return made;
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

// Bytes grow by the same amount with each token of the cache, and with each sequence: three small plans tell them. Sequences
// and tokens are those of a replica, until the result.
Json plan_serve(const ServePlan& plan) {
  const int64_t asked = plan.serving.sequences.value_or(16);
  const SmallEngine base = small_engine(plan, asked, kPage);
  const auto replicas = base.report["replicas"].get<int64_t>();
  const int64_t sequences = base.report["sequences"].get<int64_t>() / replicas;
  const SmallEngine longer = small_engine(plan, asked, 2 * kPage * replicas);
  const int64_t further = std::min(sequences, kMostSequences / replicas - sequences);
  const std::vector<int64_t> wider =
      further > 0 ? small_engine(plan, (sequences + further) * replicas, kPage).bytes : base.bytes;
  const auto context = base.report["context"].get<int64_t>();
  const std::vector<int64_t> limits = limits_of(plan, base.bytes.size());
  const int64_t pages = whole_pages(plan.serving.cache_tokens.value_or(0)) / kPage;
  int64_t tokens = plan.serving.cache_tokens ? (pages + replicas - 1) / replicas * kPage
                                             : sequences * whole_pages(context);
  // Engines then take what a limit leaves room for, one context at least.
  if (!plan.memory_limit.empty() && !plan.serving.cache_tokens)
    for (size_t i = 0; i < base.bytes.size(); ++i)
      if (const int64_t of_page = longer.bytes[i] - base.bytes[i]; of_page > 0)
        tokens =
            std::clamp((1 + (limits[i] - base.bytes[i]) / of_page) * kPage, whole_pages(context), tokens);
  Json devices = Json::array();
  int64_t token_bytes = 0, fitting = kMostSequences / replicas;
  for (size_t i = 0; i < base.bytes.size(); ++i) {
    const int64_t of_page = longer.bytes[i] - base.bytes[i];
    const int64_t predicted = base.bytes[i] + (tokens / kPage - 1) * of_page;
    token_bytes += of_page / kPage;
    devices.push_back({{"name", base.report["plan"]["devices"][i]["name"]},
                       {"arena_bytes", {{"predicted", predicted}}},
                       {"limit_bytes", limits[i]},
                       {"fits", predicted <= limits[i]}});
    // Of whole contexts, beside what is needed for none.
    const double of_sequence =
        further > 0 ? static_cast<double>(wider[i] - base.bytes[i]) / static_cast<double>(further) : 0;
    const double of_context = static_cast<double>(whole_pages(context) / kPage * of_page) + of_sequence;
    const double fixed =
        static_cast<double>(base.bytes[i] - of_page) - static_cast<double>(sequences) * of_sequence;
    if (of_context > 0)
      fitting = std::min(fitting, static_cast<int64_t>(
                                      std::max(0.0, (static_cast<double>(limits[i]) - fixed) / of_context)));
  }
  Json result = {{"mode", "serve"},
                 {"plan", base.report["plan"]["strategy"]},
                 {"replicas", replicas},
                 {"context", context},
                 {"sequences", replicas * sequences},
                 {"cache_tokens", replicas * tokens},
                 {"cache_bytes_per_token", token_bytes / replicas},
                 {"cache_bytes", tokens * token_bytes}};
  int64_t weights = 0, copied = 0;
  for (const Json& device : base.report["devices"]) {
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
            << bytes_text(number("cache_bytes_per_token")) << ": " << bytes_text(number("cache_bytes"))
            << '\n';
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
