#include "data_options.h"

#include <iostream>

#include "progress.h"
#include "text_files.h"

namespace cli {

void add_data_options(CLI::App& command, DataOptions& data) {
  command.add_option("--kind", data.kind,
                     "kind of data: auto (default): by its content; plain: one text, whatever its content; or rows: "
                     "text, prompt, prompt_completion, messages, preference or unpaired");
  command.add_option(
      "--mask", data.mask,
      "learnt part of rows: auto (default): the assistant's turns of messages, the completion after a prompt; "
      "assistant, completion or all");
  command.add_option("--packing", data.packing,
                     "rows that share a sequence: off (default), bfd, bfd_split or wrapped");
  command.add_option("--max-length", data.max_length, "maximum tokens of a row (default: seq)");
  command.add_option("--truncation", data.truncation,
                     "truncation of longer rows: keep_start (default), keep_end, drop or error");
  command.add_option("--untrained", data.untrained,
                     "rows without learnt tokens: drop (default) or error");
  command.add_flag("--skip-bad", data.skip_bad, "omit and count invalid rows");
  command.add_flag("--no-append-end", data.no_append_end, "no EOS token behind texts and completions");
  command.add_option("--template", data.template_file,
                     "a file with a Jinja template in place of the model's");
  command.add_option("--template-name", data.template_name,
                     "another of the model's templates, such as tool_use");
  command.add_option("--eval-file", data.eval_file, "a file of rows, held out");
  command.add_option(
      "--cache", data.cache,
      "folder of cached tokens, or auto: ~/.cache/tessera (default: none)");
  command.add_flag("--special", data.special, "recognise control tokens written out in texts, such as </s>");
}

bool holds_rows(const Dataset& dataset) {
  return Json::parse(text(tsr_dataset_info, static_cast<const tsr_dataset*>(dataset.get())))
      .contains("kinds");
}

namespace {

// Returns the model's template; "" without one, which texts do not need.
std::string template_text(const DataOptions& data, const Model& model) {
  if (!data.template_file.empty()) return read_file(data.template_file);
  const std::string key =
      data.template_name.empty() ? "chat_template" : "chat_template." + data.template_name;
  const std::string found = short_text(tsr_model_metadata, model.get(), key.c_str());
  if (found.empty() && !data.template_name.empty())
    throw Error(TSR_NOT_FOUND, "the model has no chat template '" + data.template_name + "'");
  return found;
}

// Options of the dataset, without the template.
Options dataset_options(const Common& common, const DataOptions& data) {
  Options options = make<Options>(tsr_options_new);
  set(options, "seq", data.seq);
  set(options, "eval_fraction", data.eval_fraction);
  set(options, "special", int64_t{data.special});
  set(options, "seed", common.seed);
  if (data.path.starts_with('[')) set(options, "files", data.path);
  set(options, "kind", data.kind);
  set(options, "mask", data.mask);
  set(options, "packing", data.packing);
  set(options, "max_length", data.max_length);
  set(options, "truncation", data.truncation);
  set(options, "untrained", data.untrained);
  set(options, "eval_file", data.eval_file);
  set(options, "cache", data.cache);
  if (data.skip_bad) set(options, "skip_bad", int64_t{1});
  if (data.no_append_end) set(options, "append_end", int64_t{0});
  return options;
}

}  // namespace

void check_data_options(const Common& common, const DataOptions& data) {
  check_options(dataset_options(common, data), "dataset");
}

Dataset open_data(const Common& common, const DataOptions& data, const Model& model,
                  const std::string& model_path) {
  const Tokenizer tokenizer = model_tokenizer(model, model_path);
  const Options options = dataset_options(common, data);
  set(options, "template", template_text(data, model));  // without effect on texts
  Dataset dataset = open_dataset(common, data.path.starts_with('[') ? "" : data.path, tokenizer, options);
  if ((!data.template_file.empty() || !data.template_name.empty()) && !holds_rows(dataset))
    throw Error(
        TSR_INVALID_ARGUMENT,
        data.path +
            " is a plain text, and --template and --template-name are of rows: wanted rows, or neither");
  return dataset;
}

void say_what_is_learnt(const Common& common, const DataOptions& data, const Dataset& dataset) {
  if (is_quiet(common)) return;
  const Json info = Json::parse(text(tsr_dataset_info, static_cast<const tsr_dataset*>(dataset.get())));
  if (!info.contains("kinds")) {
    std::cerr << "data: " << data.path << " is a plain text, all " << info["tokens"].get<int64_t>()
              << " tokens are learnt\n";
    return;
  }
  const auto count = [&](const char* key) { return info[key].get<int64_t>(); };
  std::cerr << "data: " << count("examples") << " examples, " << count("trained_tokens") << " of "
            << count("tokens") << " tokens are learnt";
  if (count("truncated") > 0)
    std::cerr << "; " << count("truncated") << " examples were cut (--max-length, --seq)";
  if (const int64_t out = count("bad") + count("too_long") + count("untrained"); out > 0)
    std::cerr << "; " << out << " rows were left out (`tessera data` says which)";
  std::cerr << '\n';
}

}  // namespace cli
