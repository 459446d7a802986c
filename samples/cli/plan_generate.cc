#include "plan_generate.h"

#include <iostream>

namespace cli {

namespace {
void print_one(const Json& plan) {
  std::cout << plan["parallel"].get<std::string>() << "  first token "
            << plan["time_to_first_token_seconds"].get<double>() << " s, each further "
            << plan["time_per_token_seconds"].get<double>() << " s, "
            << plan["tokens_per_second"].get<double>() << " tokens/s, "
            << bytes_text(plan["memory_bytes"].get<int64_t>()) << " a device\n";
}
}  // namespace

void print_generate(const Json& plan) {
  std::cout << "objective  " << plan["objective"].get<std::string>() << '\n' << "plan       ";
  print_one(plan);
  std::cout << "request    " << plan["request_seconds"].get<double>() << " s for "
            << plan["prompt"].get<int64_t>() << " + " << plan["new"].get<int64_t>() << " tokens, prompts "
            << plan["prefill_batch"].get<int64_t>() << " at a time\n"
            << "memory     " << bytes_text(plan["weight_bytes"].get<int64_t>()) << " of weights, "
            << bytes_text(plan["kv_bytes"].get<int64_t>()) << " of keys and values\n";
  for (const auto& [cause, seconds] : plan["token_seconds"].items())
    std::cout << "  " << cause << std::string(14 - cause.size(), ' ') << seconds.get<double>()
              << " s a token\n";
  std::cout << "gap        " << 100 * plan["gap"].get<double>() << " % ("
            << plan["search"]["meshes"].get<int64_t>() << " meshes, "
            << plan["search"]["priced"].get<int64_t>() << " plans priced)\nrunners-up\n";
  for (const Json& candidate : plan["candidates"]) {
    std::cout << "  ";
    print_one(candidate);
  }
}

}  // namespace cli
