#include "plan_generate.h"

#include <iostream>

#include "plan_text.h"

namespace cli {

void print_generate(const Json& plan) {
  const Json& explanation = plan["explanation"];
  const Json& serving = explanation["serving"];
  const bool throughput = serving["objective"] == "throughput";
  const auto sequences = serving["sequences"].get<int64_t>();
  std::cout << "plan       " << explanation["strategy"].get<std::string>() << "   ("
            << counted(serving["replicas"].get<int64_t>(), "replica") << " on "
            << counted(explanation["devices"].get<int64_t>(), "device") << ", for "
            << serving["objective"].get<std::string>() << ")\n"
            << "request    " << seconds_text(explanation["step_seconds"].get<double>()) << " for "
            << serving["prompt"].get<int64_t>() << " + " << serving["new"].get<int64_t>() << " tokens, "
            << counted(sequences, "sequence") << " at once\n"
            << "tokens     first after " << seconds_text(serving["first_token_seconds"].get<double>())
            << ", a further one every " << seconds_text(serving["token_seconds"].get<double>()) << "; "
            << rate_text(serving["tokens_per_second"].get<double>()) << " new tokens/s in all\n"
            << "gap        " << percent_text(explanation["gap"].get<double>());
  if (throughput)
    std::cout << ": no plan searched gives more than "
              << rate_text(serving["bound_tokens_per_second"].get<double>()) << " tokens/s";
  else
    std::cout << ": no plan searched is done sooner";
  std::cout << " (" << plan["search"]["meshes"].get<int64_t>() << " meshes of tp and pp, "
            << plan["search"]["priced"].get<int64_t>() << " plans priced)\n";
  print_explanation(std::cout, explanation, false);
}

}  // namespace cli
