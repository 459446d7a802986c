// Plan files: JSON for people and other programs, FlatBuffers for size and speed. Both are exact: what is
// loaded equals what was saved. A plan refers to tensors and nodes by id, so it belongs to the graph with its
// fingerprint.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "graph/base/result.h"
#include "graph/plan.h"
#include "serialize/model.h"

namespace tessera {

// Checks a plan without its graph: stages, axes, tiers and kinds exist, counts are positive, names are
// unique, estimates are numbers. Saving and loading both call it.
Status check_plan(const Plan& plan);

Result<std::string> plan_to_json(const Plan& plan);
Result<Plan> plan_from_json(std::string_view text);
Result<std::vector<std::byte>> plan_to_bytes(const Plan& plan);
Result<Plan> plan_from_bytes(std::shared_ptr<const ByteSource> source);

// ".json" is JSON, anything else FlatBuffers. Written to a temporary name, fsynced, renamed.
Status save_plan(const Plan& plan, const std::string& path);
Result<Plan> load_plan(const std::string& path);

}  // namespace tessera
