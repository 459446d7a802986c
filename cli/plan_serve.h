// `tessera plan --mode serve`: how many sequences an engine holds, and in how many bytes.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "command.h"
#include "serving.h"

namespace cli {

struct ServePlan {
  const Runtime& runtime;
  const Model& model;
  std::function<Options()> options;  // of engines, without those of `serving`
  Serving serving;
  std::string devices, memory_limit;  // as given; limit "": what the devices have
};

// {"plan": of each replica, "replicas", "context", "sequences", "cache_tokens", "cache_bytes_per_token", "cache_bytes",
//  "weight_bytes" where devices tell, with pages of windows "window", "window_cache_tokens", "window_bytes_per_token",
//  "limit_bytes" of a device, "sequences_that_fit", "devices": [{"name", "arena_bytes": {"predicted"}, "fits"}]}
Json plan_serve(const ServePlan& plan);
void print_serve_plan(const Json& result);

}  // namespace cli
