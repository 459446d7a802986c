#include "method.h"

#include <algorithm>
#include <cstdio>

#include "interruptible.h"
#include "plan_text.h"

namespace cli {

namespace {
using Report = Handle<tsr_text, tsr_text_free>;
}

void add_method(CLI::App& command, std::string& method) {
  command.add_option(
      "--method", method,
      "auto: the first of full, lora, qlora:q8_0, qlora:nf4, qlora:q4_0 that fits --memory-limit; or one of them; "
      "qlora takes any type of `quantize` for the weights under the adapters. --lora and its options configure the "
      "adapters (default rank 16)");
}

Model model_for_method(const Runtime& runtime, const Model& model, const tsr_dataset* dataset,
                       const Options& options, const std::string& method, const Adapters& adapters,
                       Json& report) {
  set(options, "method", method);
  const Options of_adapters = adapter_options(adapters);
  const tsr_options* const given = of_adapters.get();
  const Report said = make_interruptible<Report>(tsr_plan_methods, runtime, model.get(), dataset,
                                                 static_cast<const tsr_options*>(options.get()), given);
  report = Json::parse(tsr_text_data(said.get()));
  const std::string chosen = report["method"].get<std::string>();
  const bool is_full = chosen == "full" && method == "auto";
  return make<Model>(tsr_model_for_method, model.get(), chosen.c_str(), is_full ? nullptr : given);
}

std::string methods_text(const Json& report) {
  std::string lines = "method        a device    a step      plan\n";
  for (const Json& it : report["methods"]) {
    const std::string name = it["method"].get<std::string>();
    std::string need, step, plan;
    if (it["fits"].get<bool>()) {
      int64_t most = 0;
      for (const Json& bytes : it["bytes"]) most = std::max(most, bytes.get<int64_t>());
      need = bytes_text(most);
      step = seconds_text(it["step_seconds"].get<double>());
      plan = it["strategy"].get<std::string>();
    } else {
      need = it.contains("smallest_limit_bytes") ? bytes_text(it["smallest_limit_bytes"].get<int64_t>())
             : it.contains("least_bytes")        ? "over " + bytes_text(it["least_bytes"].get<int64_t>())
                                                 : "?";
      step = "-";
      plan = "does not fit";
    }
    char line[256];
    std::snprintf(line, sizeof line, "%-12s  %-10s  %-10s  %.160s%s\n", name.c_str(), need.c_str(),
                  step.c_str(), plan.c_str(),
                  name == report["method"].get<std::string>() ? "   <- chosen" : "");
    lines += line;
  }
  return lines;
}

}  // namespace cli
