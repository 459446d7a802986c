#include "training_text.h"

#include <iostream>
#include <utility>

#include "held_out.h"
#include "plan_text.h"
#include "preference_options.h"

namespace cli {

std::string offloaded_text(const Json& device) {
  std::string text;
  for (const auto& [key, where] : {std::pair("host_arena_bytes", " in host memory"),
                                   std::pair("file_arena_bytes", " in a file (--offload-folder)")})
    if (device.contains(key)) text += ", " + bytes_text(device[key]["predicted"].get<int64_t>()) + where;
  return text;
}

void print_result(const Json& result, const std::string& out, const std::string& limit) {
  const Json& losses = result["losses"];
  if (!losses.empty())
    std::cout << "loss       " << losses.front().get<double>() << " -> " << losses.back().get<double>()
              << '\n';
  if (result.contains("rewards") && !result["rewards"].empty())
    std::cout << "rewards    " << rewards_text(result["rewards"].back()) << '\n';
  if (result.contains("evaluation") && !result["evaluation"].is_null()) {
    std::cout << "held out   " << evaluation_text(result["evaluation"]);
    if (!result.contains("rewards") && result["unigram_entropy"].is_number())
      std::cout << " (unigram entropy of the data " << result["unigram_entropy"].get<double>() << ")";
    std::cout << '\n';
  }
  if (result.contains("best_step"))
    std::cout << "best       step " << result["best_step"].get<int64_t>() << ", "
              << result["best_loss"].get<double>() << " nats a token\n";
  if (!losses.empty())
    std::cout << "speed      " << rate_text(result["tokens_per_second"].get<double>()) << " tokens/s, "
              << seconds_text(result["step_seconds"].get<double>()) << " a step\n";
  if (const auto passed = result.value("unlabelled_steps", int64_t{0}); passed > 0)
    std::cout << "no label   " << counted(passed, "step") << " passed over: no label counted in their rows\n";
  if (!limit.empty()) std::cout << "limit      " << limit << '\n';
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
  if (result.contains("report")) std::cout << "report     " << result["report"].get<std::string>() << '\n';
}

}  // namespace cli
