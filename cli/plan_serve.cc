#include "plan_serve.h"

#include <iostream>

#include "plan_text.h"

namespace cli {

Json serving_plan(const Json& info) {
  Json plan = info["serving"];
  plan["mode"] = "serve";
  plan["plan"] = info["strategy"];
  return plan;
}

void print_serving_plan(const Json& plan) {
  const auto number = [&](const char* key) { return plan[key].get<int64_t>(); };
  std::cout << "plan       " << plan["plan"].get<std::string>();
  if (number("replicas") > 1) std::cout << " in each of " << counted(number("replicas"), "replica");
  std::cout << '\n'
            << "sequences  " << number("sequences") << " at once, of at most "
            << counted(number("context"), "token") << "; " << number("sequences_that_fit")
            << " of that length fit the memory\n"
            << "cache      " << counted(number("cache_tokens"), "token") << " of "
            << bytes_text(number("cache_bytes_per_token"));
  if (plan.contains("window"))
    std::cout << ", and " << counted(number("window_cache_tokens"), "token") << " of "
              << bytes_text(number("window_bytes_per_token")) << " in layers with a window of " << number("window");
  std::cout << ": " << bytes_text(number("cache_bytes")) << '\n'
            << "weights    " << bytes_text(number("weight_bytes")) << ", "
            << bytes_text(number("arranged_weight_bytes")) << " of them copied in the order that kernels read\n";
  for (const Json& device : plan["devices"]) {
    std::cout << "memory     " << device["name"].get<std::string>() << "  "
              << bytes_text(device["arena_bytes"]["predicted"]);
    if (device.contains("draft_bytes")) std::cout << " and " << bytes_text(device["draft_bytes"]) << " of the draft model";
    std::cout << " of " << bytes_text(device["limit_bytes"]) << (device["fits"].get<bool>() ? "" : ": too much") << '\n';
  }
}

}  // namespace cli
