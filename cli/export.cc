#include <iostream>
#include <string>

#include "command.h"
#include "progress.h"
#include "steps.h"

namespace cli {

namespace {
struct Arguments : Common {
  std::string input, output, format;
  std::optional<std::string> type, output_type, embedding_type, imatrix, shard_bytes;
  bool pure = false, no_tokenizer = false, merged = false, adapters = false;
};

// "1.00 GiB of f32 and bf16"
std::string size_text(const Json& report) {
  std::string types;
  const Json& stored = report["stored"];
  for (size_t i = 0; i < stored.size(); ++i)
    types += (i == 0 ? "" : i + 1 == stored.size() ? " and " : ", ") + stored[i]["type"].get<std::string>();
  return bytes_text(report["bytes"].get<int64_t>()) + (types.empty() ? "" : " of " + types);
}

void print_report(const Json& report, const std::string& output) {
  std::cout << output << ": " << report["architecture"].get<std::string>() << ", "
            << report["parameters"].get<int64_t>() << " parameters, " << size_text(report) << '\n';
  for (const Json& note : report["notes"]) std::cout << "note       " << note.get<std::string>() << '\n';
}

void export_model(const Arguments& args) {
  const Options options = make<Options>(tsr_options_new);
  if (!args.format.empty()) set(options, "format", args.format);
  set(options, "type", args.type);
  if (args.pure) set(options, "pure", int64_t{1});
  set(options, "output_type", args.output_type);
  set(options, "embedding_type", args.embedding_type);
  set(options, "imatrix", args.imatrix);
  set(options, "shard_bytes", args.shard_bytes);
  set(options, "tokenizer", int64_t{!args.no_tokenizer});
  set(options, "threads", args.threads);
  if (args.adapters) set(options, "adapters", int64_t{1});
  if (args.merged) set(options, "merged", int64_t{1});
  const auto* const given = static_cast<const tsr_options*>(options.get());
  auto* const none = static_cast<tsr_runtime*>(nullptr);
  const Model model = args.adapter.empty() ? Model() : open_model(args, args.input);
  const Work work =
      model ? make<Work>(tsr_export_begin_for_model, none, model.get(), args.output.c_str(), given)
            : make<Work>(tsr_export_begin, none, args.input.c_str(), args.output.c_str(), given);
  const Interruptible interruptible;  // to the end: a killed process leaves partial files
  Progress progress(args);
  run_steps(work, "exporting " + args.input, interruptible, progress);
  Json report = Json::parse(text(tsr_export_finish, work.get()));
  if (!args.json) return print_report(report, args.output);
  Json result = {{"out", args.output}};
  result.update(report);
  print_json(result);
}

}  // namespace

void register_export(CLI::App& app) {
  auto args = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand("export", "write a model for transformers or llama.cpp");
  command->footer(
      "Example:\n"
      "  tessera export tuned.tsr -o tuned-hf\n"
      "  tessera export tuned.tsr --type q4_k_m -o tuned.gguf\n"
      "  tessera export adapted.tsr --format peft -o adapter\n"
      "  tessera export adapted.tsr --format gguf --adapters -o adapter.gguf\n"
      "peft: a folder with the adapters alone, for PEFT. hf: a folder for transformers: config.json, safetensors, "
      "tokenizer.\n"
      "gguf: a file for llama.cpp, with the types of `tessera quantize`.");
  command->add_option("model", args->input, ".tsr or GGUF file, or Hugging Face folder")->required();
  command
      ->add_option("-o,--out", args->output, "folder (hf: new, empty or an earlier export) or file to write")
      ->required();
  command->add_option("--format", args->format, "hf, gguf, or peft: adapters alone (default: by the name)");
  command->add_option(
      "--type", args->type,
      "hf: f32, bf16 or f16 for all values; gguf: type of most weights (default: as they are)");
  command->add_flag("--pure", args->pure, "gguf: this type for every weight");
  command->add_option("--output-type", args->output_type, "gguf: type of the head (default: by --type)");
  command->add_option("--embedding-type", args->embedding_type,
                      "gguf: type of the token embedding (default: by --type)");
  command->add_option("--imatrix", args->imatrix, "gguf: importance matrix of llama-imatrix");
  command->add_option("--shard-bytes", args->shard_bytes,
                      "hf: bytes of a safetensors file at most, or 2GiB and such (default 5000000000)");
  command->add_flag("--no-tokenizer", args->no_tokenizer, "leave the tokenizer out");
  command->add_option("--threads", args->threads, "encoding threads; 0: all cores of this process")
      ->capture_default_str();
  command->add_flag("--merged", args->merged, "hf, gguf: merge adapters into the weights first");
  command->add_flag("--adapters", args->adapters, "gguf: adapters alone, for llama.cpp's --lora");
  add_adapter_file(*command, *args);
  add_json(*command, *args);
  add_quiet(*command, *args);
  command->callback([args] { export_model(*args); });
}

}  // namespace cli
