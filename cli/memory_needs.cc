#include "memory_needs.h"

#include <algorithm>
#include <iostream>

namespace cli {

namespace {

constexpr int64_t kRank = 8, kBatch = 1, kContext = 2048, kSeq = 512;

Json need_of(const Common& common, const Runtime& runtime, const Model& model, const Options& options,
             Json need) {
  try {
    const Plan plan = make_plan(common, runtime, model, options);
    const Json info = Json::parse(text(tsr_plan_info, plan.get()));
    need["plan"] = info["strategy"];
    need["bytes"] = Json::array();
    for (const Json& device : info["devices"]) need["bytes"].push_back(device["arena_bytes"]["predicted"]);
  } catch (const Error& error) {
    if (error.code() == TSR_CANCELLED) throw;
    need["error"] = error.what();
  }
  return need;
}

Options planned(const Common& common, const char* mode) {
  Options options = make<Options>(tsr_options_new);
  set(options, "devices", common.devices);
  set(options, "mode", mode);
  return options;
}

Options trained(const Common& common, int64_t seq) {
  Options options = planned(common, "train");
  set(options, "batch", kBatch);
  set(options, "seq", seq);
  return options;
}

}  // namespace

Json memory_needs(const Common& common, const Model& model, int64_t longest) {
  const Runtime runtime = open_runtime(common);
  const int64_t context = std::min(kContext, longest), seq = std::min(kSeq, longest);
  Json needs = Json::object();
  Options generating = planned(common, "generate");
  set(generating, "context", context);
  needs["inference"] = need_of(common, runtime, model, generating, {{"context", context}});
  try {
    const Options rank = make<Options>(tsr_options_new);
    set(rank, "rank", kRank);
    const Model with_adapters =
        make<Model>(tsr_model_add_adapters, model.get(), static_cast<const tsr_options*>(rank.get()));
    needs["lora"] = need_of(common, runtime, with_adapters, trained(common, seq),
                            {{"rank", kRank}, {"batch", kBatch}, {"seq", seq}});
  } catch (const Error& error) {
    if (error.code() == TSR_CANCELLED) throw;
    needs["lora"] = {{"error", error.what()}};
  }
  needs["full"] = need_of(common, runtime, model, trained(common, seq), {{"batch", kBatch}, {"seq", seq}});
  return needs;
}

void print_memory_needs(const Json& needs, const std::string& devices) {
  std::cout << "memory        on " << devices << '\n';
  const auto line = [](const std::string& what, const Json& need) {
    std::cout << "  " << what << "  ";
    if (need.contains("error")) {
      std::cout << need["error"].get<std::string>() << '\n';
      return;
    }
    const char* before = "";
    for (const Json& bytes : need["bytes"]) {
      std::cout << before << bytes_text(bytes.get<int64_t>());
      before = ", ";
    }
    std::cout << '\n';
  };
  const auto number = [](const Json& need, const char* key) {
    return need.contains(key) ? std::to_string(need[key].get<int64_t>()) : std::string("?");
  };
  line("to generate, a context of " + number(needs["inference"], "context") + " tokens:", needs["inference"]);
  line("to train adapters of rank " + number(needs["lora"], "rank") + ", a sequence of " +
           number(needs["lora"], "seq") + " tokens:",
       needs["lora"]);
  line("to train all of it, a sequence of " + number(needs["full"], "seq") + " tokens:", needs["full"]);
}

}  // namespace cli
