#include "training_text.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iostream>
#include <utility>

#include "plan_text.h"
#include "preference_options.h"

namespace cli {

namespace {

// NaN for null: unknown, or not finite.
double number_of(const Json& object, const char* key) {
  return object[key].is_null() ? std::nan("") : object[key].get<double>();
}

// "12 s", "1 min 20 s", "3 h 05 min".
std::string duration_text(double seconds) {
  char text[48];
  const auto whole = static_cast<long long>(seconds + 0.5);
  if (whole < 60)
    std::snprintf(text, sizeof text, "%lld s", whole);
  else if (whole < 3600)
    std::snprintf(text, sizeof text, "%lld min %02lld s", whole / 60, whole % 60);
  else
    std::snprintf(text, sizeof text, "%lld h %02lld min", whole / 3600, whole / 60 % 60);
  return text;
}

// "74 % of the physical limit: ..."; empty before the first step.
std::string limit_text(const Json& limit) {
  if (limit["share"].is_null()) return "";
  std::string terms;
  for (const Json& term : limit["terms"])
    terms += (terms.empty() ? "" : ", ") + term["phase"].get<std::string>() + " " +
             seconds_text(term["seconds"].get<double>()) + " by " + term["bound"].get<std::string>();
  return percent_text(limit["share"].get<double>()) + " of the physical limit: no step takes less than " +
         seconds_text(limit["seconds"].get<double>()) + " (" + terms + ", rates as " +
         (limit["rates"] == "measured" ? "measured" : "stated; `tessera calibrate` measures") + ")";
}

}  // namespace

std::string offloaded_text(const Json& device) {
  std::string text;
  for (const auto& [key, where] : {std::pair("host_arena_bytes", " in host memory"),
                                   std::pair("file_arena_bytes", " in a file (--offload-folder)")})
    if (device.contains(key)) text += ", " + bytes_text(device[key]["predicted"].get<int64_t>()) + where;
  return text;
}

std::string step_text(const Json& step) {
  char line[256];
  std::snprintf(line, sizeof line, "step %lld/%lld  loss %.4f", static_cast<long long>(step["step"].get<int64_t>()),
                static_cast<long long>(step["steps"].get<int64_t>()), number_of(step, "loss"));
  std::string all = line;
  if (!step["eval_loss"].is_null()) {
    std::snprintf(line, sizeof line, "  held out %.4f", step["eval_loss"].get<double>());
    all += line;
  }
  std::snprintf(line, sizeof line, "  grad norm %.3g  lr %.3g  %.0f tokens/s  ", number_of(step, "grad_norm"),
                number_of(step, "lr"), number_of(step, "tokens_per_second"));
  all += line + duration_text(step["seconds_left"].get<double>()) + " left  " +
         bytes_text(step["memory_bytes"].get<int64_t>());
  return step.contains("reward_margin") ? all + "  " + rewards_text(step) : all;
}

std::string evaluation_text(const Json& evaluation) {
  char line[160];
  if (evaluation.contains("rewards")) {
    std::snprintf(line, sizeof line, "%.6g  ", number_of(evaluation, "loss"));
    return line + rewards_text(evaluation["rewards"]);
  }
  std::snprintf(line, sizeof line, "%.6g nats a token, perplexity %.6g, %.2f %% of %lld tokens predicted",
                number_of(evaluation, "loss"), number_of(evaluation, "perplexity"),
                100 * number_of(evaluation, "accuracy"),
                static_cast<long long>(evaluation["labels"].get<int64_t>()));
  return line;
}

std::string sample_text(const Json& sample) {
  std::string line = "sample  " + sample["prompt"].get<std::string>() + " | " + sample["text"].get<std::string>();
  std::ranges::replace(line, '\n', ' ');
  return line;
}

std::string kept_text(const Json& report) {
  const Json& saving = report["saving"];
  const auto size = [&](const char* key) { return bytes_text(saving[key].get<int64_t>()); };
  std::string kept;
  if (!report["checkpoint"].is_null())
    kept = "checkpoints of " + size("checkpoint_bytes") + " to " + report["checkpoint"].get<std::string>() + " every " +
           std::to_string(report["checkpoint_every"].get<int64_t>()) + " steps, each from a copy of " +
           size("snapshot_bytes") + " in memory while the training goes on";
  if (report["out"].is_null()) return kept;
  const std::string kind = report["out_kind"].get<std::string>();
  return kept + (kept.empty() ? "" : "; ") +
         (kind == "adapters" ? "the adapters, as PEFT has them,"
          : kind == "merged" ? "the merged model"
                             : "the model of " + size("model_bytes")) +
         " to " + report["out"].get<std::string>();
}

void print_result(const Json& result, const std::string& out) {
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
  if (const std::string limit = limit_text(result["limit"]); !limit.empty()) std::cout << "limit      " << limit << '\n';
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
