#include <iostream>

#include "command.h"

namespace cli {

void register_devices(CLI::App& app) {
  auto common = std::make_shared<Common>();
  CLI::App* command = app.add_subcommand("devices", "what can compute here and, where something cannot, why");
  command->footer("Example:\n  tessera devices --json");
  add_json(*command, *common);
  command->callback([common] {
    const Runtime runtime = open_runtime(*common);
    const Json report = Json::parse(text(tsr_runtime_backends, runtime.get()));
    if (common->json) return print_json(report);
    for (const Json& backend : report["backends"]) {
      std::cout << backend["name"].get<std::string>() << ": ";
      if (!backend["available"].get<bool>()) {
        std::cout << "not available: " << backend["reason"].get<std::string>() << '\n';
        continue;
      }
      const int64_t count = backend["device_count"].get<int64_t>();
      std::cout << (count >= INT32_MAX ? std::string("any number of virtual devices")
                                       : std::to_string(count) + " devices");
      for (const Json& device : backend["devices"]) std::cout << "\n  " << device.get<std::string>();
      std::cout << '\n';
    }
  });
}

}  // namespace cli
