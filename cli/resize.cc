#include <iostream>
#include <vector>

#include "command.h"

namespace cli {

namespace {
struct Arguments : Common {
  std::string model, output;
  std::vector<std::string> tokens;
  int64_t rows = 0, multiple = 1;
  bool as_text = false;
};

int64_t table_rows(const Json& info) {
  for (const Json& tensor : info["tensors"])
    if (tensor["name"] == "token_embedding") return tensor["shape"][0].get<int64_t>();
  return 0;
}
}  // namespace

void register_resize(CLI::App& app) {
  auto args = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand("resize", "add tokens to a model, and rows to its token table and head");
  command->footer(
      "Example:\n  tessera resize model.tsr --token '<|tool|>' --token '<|/tool|>' -o wider.tsr\n"
      "New rows are the mean of the old ones, with 1e-9 of their covariance, as transformers has it.");
  command->add_option("model", args->model, "model file or folder")->required();
  command->add_option("-o,--out", args->output, ".tsr file to write")->required();
  command->add_option("--token", args->tokens, "a new control token; once for each")->allow_extra_args(false);
  command->add_flag("--as-text", args->as_text, "the new tokens are text, not control tokens");
  command->add_option("--rows", args->rows, "rows wanted (default: the table's, or the tokenizer's tokens)");
  command->add_option("--multiple", args->multiple, "round the rows up to a multiple of this")
      ->capture_default_str();
  command->add_option("--seed", args->seed, "seed of the new rows")->capture_default_str();
  add_json(*command, *args);
  command->callback([args] {
    const Model model = open_model(*args, args->model);
    Options options = make<Options>(tsr_options_new);
    if (!args->tokens.empty()) set(options, "tokens", Json(args->tokens).dump());
    set(options, "special", int64_t{args->as_text ? 0 : 1});
    set(options, "multiple", args->multiple);
    set(options, "seed", args->seed);
    const Model resized = make<Model>(tsr_model_resize_tokens, model.get(), args->rows, options.get());
    save_model(*args, resized, args->output);
    const Json before = Json::parse(text(tsr_model_info, model.get()));
    const Json after = Json::parse(text(tsr_model_info, resized.get()));
    const Json tokens = after["tokenizer"].is_object() ? after["tokenizer"]["vocabulary_size"] : Json();
    if (args->json)
      return print_json({{"out", args->output},
                         {"rows_before", table_rows(before)},
                         {"rows", table_rows(after)},
                         {"tokens", tokens}});
    std::cout << args->output << ": " << table_rows(after) << " rows, " << table_rows(before) << " before";
    if (!tokens.is_null()) std::cout << "; the tokenizer has " << tokens.get<int64_t>() << " tokens";
    std::cout << "\n";
  });
}

}  // namespace cli
