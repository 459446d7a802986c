// `tessera data`: a preview of training data as a training reads it.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <vector>

#include "data_options.h"
#include "progress.h"

namespace cli {
namespace {

struct Arguments : Common {
  std::string model;
  DataOptions data;
  int64_t examples = 2;
  int64_t dropped = 10;
};

std::string decoded(const Tokenizer& tokenizer, const std::vector<int32_t>& ids) {
  return text(tsr_tokenizer_decode, static_cast<const tsr_tokenizer*>(tokenizer.get()),
              static_cast<const int32_t*>(ids.data()), ids.size());
}

// A control token has no text of its own: its name is shown.
std::string shown_token(const Tokenizer& tokenizer, const Json& control, int32_t id,
                        const std::vector<int32_t>& before) {
  if (const auto found = control.find(std::to_string(id)); found != control.end())
    return found->get<std::string>();
  std::vector<int32_t> with = before;
  with.push_back(id);
  const std::string prefix = decoded(tokenizer, before), all = decoded(tokenizer, with);
  std::string own = all.size() >= prefix.size() ? all.substr(prefix.size()) : all;
  if (!own.empty()) return own;
  return "<" + std::to_string(id) + ">";
}

// Learnt tokens in green, or where there are no colours between ⟦ and ⟧; behind them a weight other than 1: ⟦so⟧×0.5
std::string marked(const Tokenizer& tokenizer, const Json& example, bool colours) {
  const char *const on = colours ? "\033[32m" : "⟦", *const off = colours ? "\033[0m" : "⟧";
  std::string out;
  double inside = 0;  // weight of the learnt part; 0: outside of one
  const auto end = [&]() -> std::string {
    if (inside == 1) return off;
    char weight[32];
    std::snprintf(weight, sizeof weight, "×%.4g", inside);
    return std::string(off) + weight;
  };
  std::vector<int32_t> before;
  for (size_t i = 0; i < example["ids"].size(); ++i) {
    const double learnt = example.contains("weights")             ? example["weights"][i].get<double>()
                          : example["trained"][i].get<int>() != 0 ? 1
                                                                  : 0;
    if (learnt != inside) out += (inside != 0 ? end() : "") + (learnt != 0 ? on : "");
    inside = learnt;
    const auto id = example["ids"][i].get<int32_t>();
    out += shown_token(tokenizer, example["control"], id, before);
    before.push_back(id);
    if (before.size() > 8) before.erase(before.begin());
  }
  return out + (inside != 0 ? end() : "");
}

void print_lengths(const Json& info) {
  int64_t most = 1;
  for (const Json& bucket : info["lengths"]) most = std::max(most, bucket[1].get<int64_t>());
  for (const Json& bucket : info["lengths"]) {
    const auto count = bucket[1].get<int64_t>();
    std::string line = "  up to " + std::to_string(bucket[0].get<int64_t>());
    line.resize(std::max<size_t>(line.size() + 1, 17), ' ');
    std::cout << line << std::string(static_cast<size_t>(std::max<int64_t>(1, 40 * count / most)), '#') << ' '
              << count << '\n';
  }
}

void print_info(const Json& info, int64_t most_omissions) {
  std::cout << "rows       " << info["rows"].get<int64_t>() << '\n';
  for (const auto& [kind, count] : info["kinds"].items())
    std::cout << "examples   " << count.get<int64_t>() << " of kind " << kind << '\n';
  const auto tokens = info["tokens"].get<int64_t>(), trained = info["trained_tokens"].get<int64_t>();
  std::cout << "tokens     " << tokens << ", of which " << trained << " are learnt ("
            << (tokens > 0 ? 100 * trained / tokens : 0) << " %)\n"
            << "lengths    " << info["shortest"].get<int64_t>() << " to " << info["longest"].get<int64_t>()
            << ", median " << info["median"].get<int64_t>() << '\n';
  print_lengths(info);
  std::cout << "sequences  " << info["train_samples"].get<int64_t>() << " of " << info["seq"].get<int64_t>()
            << " tokens an epoch, " << info["eval_samples"].get<int64_t>() << " held out; packing "
            << info["packing"].get<std::string>() << ", "
            << static_cast<int>(100 * info["efficiency"].get<double>() + 0.5)
            << " % of the places are filled\n";
  for (const auto& [key, words] :
       {std::pair("bad", "are none"), {"too_long", "are too long"}, {"untrained", "teach nothing"}})
    if (const auto count = info[key].get<int64_t>(); count > 0)
      std::cout << "left out   " << count << " rows that " << words << '\n';
  if (const auto cut = info["truncated"].get<int64_t>(); cut > 0)
    std::cout << "cut        " << cut << " examples, to the longest that fits\n";
  int64_t shown = 0;
  for (const Json& omission : info["omissions"]) {
    if (shown++ == most_omissions) break;
    std::cout << "  " << omission["file"].get<std::string>() << " line " << omission["line"].get<int64_t>()
              << ": " << omission["reason"].get<std::string>() << '\n';
  }
  if (!info["ignored"].empty()) {
    std::cout << "not read   fields";
    for (const Json& field : info["ignored"]) std::cout << ' ' << field.get<std::string>();
    std::cout << '\n';
  }
  if (const auto note = info["note"].get<std::string>(); !note.empty()) std::cout << "note       " << note << '\n';
  if (!info["cache"].is_null()) std::cout << "tokens in  " << info["cache"].get<std::string>() << '\n';
}

void data(const Arguments& args) {
  check_data_options(args, args.data);
  const Model model = open_model(args, args.model, args.seed);
  const Tokenizer tokenizer = model_tokenizer(model, args.model);
  const Dataset dataset = open_data(args, args.data, model, args.model);
  if (!holds_rows(dataset))
    throw Error(TSR_INVALID_ARGUMENT,
                args.data.path +
                    " is a plain text, wanted rows of training data (JSON lines or an array); "
                    "`tessera tokenize` shows the tokens of a text");
  const auto* const raw = static_cast<const tsr_dataset*>(dataset.get());
  Json info = Json::parse(text(tsr_dataset_info, raw));
  std::vector<Json> examples;
  for (int64_t i = 0; i < std::min(args.examples, info["examples"].get<int64_t>()); ++i)
    examples.push_back(Json::parse(text(tsr_dataset_example, raw, i)));
  if (args.json) {
    info["first"] = Json::array();
    for (Json& example : examples) {
      example["text"] = marked(tokenizer, example, false);
      info["first"].push_back(std::move(example));
    }
    return print_json(info);
  }
  const bool colours = isatty(STDOUT_FILENO) == 1;
  for (const Json& example : examples) {
    std::cout << "--- " << example["file"].get<std::string>() << " line " << example["line"].get<int64_t>()
              << ", " << example["kind"].get<std::string>();
    if (const auto role = example["role"].get<std::string>(); role != "plain") std::cout << ", " << role;
    std::cout << ", " << example["ids"].size() << " tokens; "
              << (colours ? "learnt in green" : "learnt between ⟦ and ⟧") << '\n'
              << marked(tokenizer, example, colours) << '\n';
  }
  if (!examples.empty()) std::cout << "---\n";
  print_info(info, args.dropped);
}

}  // namespace

void register_data(CLI::App& app) {
  auto args = std::make_shared<Arguments>();
  CLI::App* command =
      app.add_subcommand("data", "show the training examples in a file of rows, and the learnt tokens");
  command->footer(
      "Example:\n  tessera data chats.jsonl --model model.tsr\n"
      "  tessera data pairs.jsonl --model model.gguf --seq 2048 --packing bfd --examples 0\n"
      "  tessera data chats.jsonl --model model.tsr --skip-bad --json | jq .omissions");
  add_data_options(*command, args->data);
  command->add_option("data", args->data.path, "file of rows, or JSON of several as for `train --data`")
      ->required();
  command
      ->add_option("--model", args->model,
                   ".tsr or GGUF file, or Hugging Face folder: its tokenizer and template")
      ->required();
  command->add_option("--seq", args->data.seq, "tokens a sequence (default 128)");
  command->add_option("--eval-fraction", args->data.eval_fraction, "held-out fraction of the rows")
      ->capture_default_str();
  command->add_option("--seed", args->seed, "seed of the order and of the held-out rows")->capture_default_str();
  command->add_option("--examples", args->examples, "number of examples to show")
      ->capture_default_str();
  command->add_option("--omissions", args->dropped, "number of omitted rows to show")
      ->capture_default_str();
  add_json(*command, *args);
  add_quiet(*command, *args);
  command->callback([args] { data(*args); });
}

}  // namespace cli
