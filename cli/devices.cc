#include <iostream>

#include "command.h"

namespace cli {

void register_devices(CLI::App& app) {
  auto common = std::make_shared<Common>();
  CLI::App* command = app.add_subcommand("devices", "list the devices here, and why others are unavailable");
  command->footer("Example:\n  tessera devices\n  tessera devices --json");
  auto all = std::make_shared<bool>(false);
  command->add_flag("--all", *all,
                    "also devices that do not compute: null devices, and backends that are only links");
  add_json(*command, *common);
  command->callback([common, all] {
    const Runtime runtime = open_runtime(*common);
    const Json report = Json::parse(text(tsr_runtime_backends, runtime.get()));
    if (common->json) return print_json(report);
    for (const Json& backend : report["backends"]) {
      const std::string name = backend["name"].get<std::string>();
      const bool is_null = name == "null";
      if (!*all && (is_null || name == "mpi")) continue;
      std::cout << name << ": ";
      if (is_null) {
        std::cout << "computes nothing: any number of virtual devices, for plans and tests; results on them "
                     "are noise\n";
        continue;
      }
      if (!backend["available"].get<bool>()) {
        std::cout << "not available: " << backend["reason"].get<std::string>() << '\n';
        continue;
      }
      const int64_t count = backend["device_count"].get<int64_t>();
      if (count >= INT32_MAX)
        std::cout << "any number of virtual devices";
      else
        std::cout << count << (count == 1 ? " device" : " devices");
      for (const Json& device : backend["devices"]) std::cout << "\n  " << device.get<std::string>();
      std::cout << '\n';
    }
  });
}

}  // namespace cli
