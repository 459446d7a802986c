#include "training_text.h"

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <utility>

#include "held_out.h"
#include "plan_text.h"

namespace cli {

namespace {

// "45 s", "12 min", "3 h 05 min"
std::string duration_text(double seconds) {
  char text[48];
  const auto minutes = static_cast<long long>(std::min(seconds / 60, 1e12));
  if (seconds < 120)
    std::snprintf(text, sizeof text, "%.0f s", seconds);
  else if (minutes < 120)
    std::snprintf(text, sizeof text, "%lld min", minutes);
  else
    std::snprintf(text, sizeof text, "%lld h %02lld min", minutes / 60, minutes % 60);
  return text;
}

}  // namespace

std::string progress_line(const tsr_step& step, int64_t steps, int64_t tokens, double left_s) {
  char line[160];
  std::snprintf(line, sizeof line,
                "step %lld/%lld  loss %.4f  grad norm %.3g  lr %.3g  %.0f tokens/s  %s left",
                static_cast<long long>(step.step), static_cast<long long>(steps), step.loss, step.grad_norm,
                step.lr, static_cast<double>(tokens) / step.seconds, duration_text(left_s).c_str());
  return line;
}

std::string offloaded_text(const Json& device) {
  std::string text;
  for (const auto& [key, where] : {std::pair("host_arena_bytes", " in host memory"),
                                   std::pair("file_arena_bytes", " in a file (--offload-folder)")})
    if (device.contains(key)) text += ", " + bytes_text(device[key]["predicted"].get<int64_t>()) + where;
  return text;
}

void print_result(const Json& result, const std::string& out) {
  const Json& losses = result["losses"];
  if (!losses.empty())
    std::cout << "loss       " << losses.front().get<double>() << " -> " << losses.back().get<double>()
              << '\n';
  if (result.contains("evaluation") && !result["evaluation"].is_null())
    std::cout << "held out   " << evaluation_text(result["evaluation"]) << " (unigram entropy of the data "
              << result["unigram_entropy"].dump() << ")\n";
  if (result.contains("best_step"))
    std::cout << "best       step " << result["best_step"].get<int64_t>() << ", "
              << result["best_loss"].get<double>() << " nats a token\n";
  if (!losses.empty())
    std::cout << "speed      " << rate_text(result["tokens_per_second"].get<double>()) << " tokens/s, "
              << seconds_text(result["step_seconds"].get<double>()) << " a step\n";
  for (const Json& device : result["devices"])
    std::cout << "memory     " << device["name"].get<std::string>() << "  predicted "
              << device["arena_bytes"]["predicted"].get<int64_t>() << ", measured "
              << device["arena_bytes"]["measured"].get<int64_t>() << " bytes" << offloaded_text(device)
              << '\n';
  for (const Json& comm : result["comm"])
    std::cout << "comm       " << comm["collective"].get<std::string>() << " over "
              << comm["axis"].get<std::string>() << ": " << comm["calls"].get<int64_t>() << " calls, "
              << comm["bytes"].get<int64_t>() << " bytes\n";
  if (!out.empty()) std::cout << "wrote      " << out << '\n';
  if (result.contains("checkpoint"))
    std::cout << "checkpoint " << result["checkpoint"].get<std::string>() << '\n';
}

}  // namespace cli
