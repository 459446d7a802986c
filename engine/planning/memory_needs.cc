#include "engine/planning/memory_needs.h"

#include <algorithm>

#include "engine/model/adapters.h"
#include "engine/planning/option_check.h"
#include "engine/planning/planning.h"
#include "engine/program/report.h"
#include "text/json.h"

namespace tessera {
namespace {

// `need` with the plan's bytes, or with the reason why there is no plan; kCancelled.
Result<Json> with_plan(Json need, const Result<std::shared_ptr<const PlanRecord>>& plan) {
  if (plan.status().code() == StatusCode::kCancelled) return plan.status();
  if (!plan.ok()) {
    need["error"] = std::string(plan.status().message());
    return need;
  }
  const Json info = Json::parse(plan_json(**plan));
  need["plan"] = info["strategy"];
  need["bytes"] = Json::array();
  for (const Json& device : info["devices"]) need["bytes"].push_back(device["arena_bytes"]["predicted"]);
  return need;
}

}  // namespace

Result<std::string> memory_needs_json(Runtime& runtime, const SharedModel& model, const Options& options) {
  constexpr int64_t kMost = int64_t{1} << 40;
  const int64_t known = model.context_length(), longest = known > 0 ? known : kMost;
  OptionReader reader(options, "memory needs");
  const int64_t context = reader.i64("context", std::min<int64_t>(2048, longest), 1);
  const int64_t seq = reader.i64("seq", std::min<int64_t>(512, longest), 1);
  const int64_t batch = reader.i64("batch", 1, 1), rank = reader.i64("rank", 8, 1);
  Options placed = options;
  for (const char* key : {"context", "seq", "batch", "rank"}) placed.erase(key);
  for (const auto& [key, value] : placed) reader.accept({key});  // refused below, where unknown
  TSR_RETURN_IF_ERROR(reader.finish());
  Options generating = placed, training = placed;
  generating.insert({{"mode", std::string("generate")}, {"context", context}});
  training.insert({{"mode", std::string("train")}, {"batch", batch}, {"seq", seq}});
  for (const Options* each : {&generating, &training}) TSR_RETURN_IF_ERROR(check_options("plan", *each));
  Json needs = Json::object();
  TSR_ASSIGN_OR_RETURN(needs["inference"], with_plan({{"context", context}}, plan_model(runtime, model, generating)));
  const Json lora = {{"rank", rank}, {"batch", batch}, {"seq", seq}};
  const auto adapted = add_adapters_without_values(model, {{"rank", rank}});
  TSR_ASSIGN_OR_RETURN(needs["lora"], adapted.ok() ? with_plan(lora, plan_model(runtime, **adapted, training))
                                                   : with_plan(lora, adapted.status()));
  TSR_ASSIGN_OR_RETURN(needs["full"],
                       with_plan({{"batch", batch}, {"seq", seq}}, plan_model(runtime, model, training)));
  return dump(needs);
}

}  // namespace tessera
