#include <algorithm>
#include <iostream>
#include <string>

#include "command.h"
#include "progress.h"
#include "text_files.h"

namespace cli {

namespace {
struct Arguments : Common {
  std::string input, output;
  bool compress = false;
};

// "q4_0 and f32"
std::string type_list(const Json& types) {
  std::string list;
  for (size_t i = 0; i < types.size(); ++i)
    list += (i == 0 ? "" : i + 1 == types.size() ? " and " : ", ") + types[i].get<std::string>();
  return list;
}

// The types of a report's "in": "q8_0", or "f32, compressed".
Json stored_types(const Json& file) {
  Json types = Json::array();
  for (const Json& stored : file["stored"]) types.push_back(stored["type"]);
  return types;
}

// The same without the packing.
Json element_types(const Json& file) {
  Json types = Json::array();
  for (const Json& stored : stored_types(file)) {
    const std::string type = stored.get<std::string>();
    const Json element = type.substr(0, type.find(','));
    if (std::find(types.begin(), types.end(), element) == types.end()) types.push_back(element);
  }
  return types;
}

// "1.00 MiB of q8_0 and f32 -> 7.94 MiB of f32: ..."
void print_growth(const Json& result) {
  const auto before = result["file_bytes"].get<int64_t>(), after = result["out_bytes"].get<int64_t>();
  const Json &stored = result["file_types"], &kept = result["out_types"];
  std::cout << "size       " << bytes_text(before) << (stored.empty() ? "" : " of " + type_list(stored))
            << " -> " << bytes_text(after) << " of " << type_list(kept);
  if (after > before + before / 8 && stored != kept)
    std::cout
        << ": parameters are kept as " << type_list(kept)
        << ", which training needs (--compress makes the file smaller, `generate --weights q8_0` what is "
           "held)";
  std::cout << '\n';
}
}  // namespace

void register_import(CLI::App& app) {
  auto args = std::make_shared<Arguments>();
  CLI::App* command =
      app.add_subcommand("import", "convert a GGUF file or a Hugging Face folder to a .tsr model");
  command->footer("Example:\n  tessera import stories260K.gguf -o stories.tsr");
  command
      ->add_option(
          "model", args->input,
          "GGUF file (any one of a split model), Hugging Face folder, or .tsr to write again")
      ->required();
  command->add_option("-o,--out", args->output, "file to write: .tsr, or GGUF where the name ends in .gguf")
      ->required();
  command->add_flag("--compress", args->compress, "compress the tensors (smaller, no longer mapped)");
  add_json(*command, *args);
  add_quiet(*command, *args);
  command->callback([args] {
    check_output(args->output);
    const Options options = make<Options>(tsr_options_new);
    set(options, "compress", int64_t{args->compress});
    const Json report = convert(*args, "importing", args->input, args->output, options);
    const Json result = {{"out", args->output},
                         {"parameters", report["parameters"]},
                         {"file_bytes", report["in"]["bytes"]},
                         {"file_types", stored_types(report["in"])},
                         {"out_bytes", report["out"]["bytes"]},
                         {"out_types", element_types(report["out"])}};
    if (args->json) return print_json(result);
    std::cout << args->output << ": " << report["architecture"].get<std::string>() << ", "
              << report["parameters"].get<int64_t>() << " parameters\n";
    print_growth(result);
  });
}

}  // namespace cli
