#include "engine/serving/replicas/replica_settings.h"

#include <algorithm>
#include <string>
#include <vector>

#include "graph/base/text.h"
#include "parallel/strategy/strategy.h"

namespace tessera {

namespace {

std::string with_one_replica(std::string_view parallel) {
  std::vector<std::string> words = split(parallel, ',');
  for (std::string& word : words)
    if (trim(word).starts_with("dp")) word = "dp=1";
  return join(words, ",");
}

int64_t divided_up(int64_t whole, int64_t parts) { return (whole + parts - 1) / parts; }

}  // namespace

Result<int32_t> count_replicas(std::string_view parallel) {
  TSR_ASSIGN_OR_RETURN(const StrategyPins pins, parse_parallel(parallel));
  const StrategySpec& spec = pins.spec;
  if (spec.dp == 1) return 1;
  for (const auto& [is_given, word] : {std::pair(spec.zero > 0, "zero"), std::pair(spec.owt, "owt")})
    if (is_given)
      return Status(
          StatusCode::kInvalidArgument,
          format(
              "engine: parallel '{}': {} spreads parameters over dp, but each of an engine's {} replicas has "
              "all of them; wanted dp without it: tp or pp divide parameters within a replica",
              parallel, word, spec.dp));
  return spec.dp;
}

ServingSettings settings_of_replica(ServingSettings whole, int32_t replicas) {
  if (replicas == 1) return whole;
  whole.compute.parallel = with_one_replica(whole.compute.parallel);
  whole.rows = divided_up(whole.rows, replicas);
  whole.pages = divided_up(whole.pages, replicas);
  whole.window_pages = divided_up(whole.window_pages, replicas);
  if (int64_t& limit = whole.compute.host_memory_limit; limit > 0)
    limit = std::max<int64_t>(1, limit / replicas);
  return whole;
}

}  // namespace tessera
