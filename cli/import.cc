#include <algorithm>
#include <filesystem>
#include <iostream>
#include <system_error>

#include "command.h"

namespace cli {

namespace {
struct Arguments : Common {
  std::string input, output;
  bool compress = false;
};

int64_t file_bytes(const std::string& path) {
  std::error_code ignored;
  const auto bytes = std::filesystem::file_size(path, ignored);
  return ignored ? 0 : static_cast<int64_t>(bytes);
}

// "q4_0 and f32"
std::string type_list(const Json& types) {
  std::string list;
  for (size_t i = 0; i < types.size(); ++i)
    list += (i == 0 ? "" : i + 1 == types.size() ? " and " : ", ") + types[i].get<std::string>();
  return list;
}

Json stored_types(const Json& info) {
  Json types = Json::array();
  if (info.contains("file") && !info["file"].is_null())
    for (const Json& stored : info["file"]["stored"]) types.push_back(stored["type"]);
  return types;
}

Json model_types(const Json& info) {
  Json types = Json::array();
  for (const Json& tensor : info["tensors"])
    if (std::find(types.begin(), types.end(), tensor["dtype"]) == types.end())
      types.push_back(tensor["dtype"]);
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
        << ", which training needs (--compress makes the file smaller, `generate --weights int8` what is "
           "held)";
  std::cout << '\n';
}
}  // namespace

void register_import(CLI::App& app) {
  auto args = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand("import", "convert a GGUF file to a .tsr model");
  command->footer("Example:\n  tessera import stories260K.gguf -o stories.tsr");
  command->add_option("model", args->input, "GGUF file (or .tsr, to write it again)")->required();
  command->add_option("-o,--out", args->output, ".tsr file to write")->required();
  command->add_flag("--compress", args->compress, "compress the tensors (smaller, no longer mapped)");
  add_json(*command, *args);
  command->callback([args] {
    check_output(args->output);
    std::error_code ignored;
    if (std::filesystem::equivalent(args->input, args->output, ignored))
      throw Error(TSR_INVALID_ARGUMENT,
                  args->output + ": is the file to import, which would be lost; give --out another name");
    const Model model = make<Model>(tsr_model_load, args->input.c_str());
    Options options = make<Options>(tsr_options_new);
    set(options, "compress", int64_t{args->compress});
    check(tsr_model_save(model.get(), args->output.c_str(), options.get()));
    check(tsr_model_verify(args->output.c_str()));
    const Json info = Json::parse(text(tsr_model_info, model.get()));
    const Json result = {{"out", args->output},
                         {"parameters", info["parameters"]},
                         {"file_bytes", file_bytes(args->input)},
                         {"file_types", stored_types(info)},
                         {"out_bytes", file_bytes(args->output)},
                         {"out_types", model_types(info)}};
    if (args->json) return print_json(result);
    std::cout << args->output << ": " << info["architecture"].get<std::string>() << ", "
              << info["parameters"].get<int64_t>() << " parameters\n";
    print_growth(result);
  });
}

}  // namespace cli
