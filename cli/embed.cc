// tessera embed and tessera classify: rows of numbers for texts. They differ in their output.
#include <algorithm>
#include <iostream>
#include <numeric>
#include <optional>
#include <string_view>
#include <vector>

#include "command.h"
#include "inference.h"
#include "plan_text.h"
#include "steps.h"
#include "text_files.h"

namespace cli {

namespace {

struct Arguments : Common {
  std::string model, file;
  std::vector<std::string> texts, pairs;
  Inference inference;
  std::optional<int64_t> seq, batch;
  std::optional<std::string> pooling;
  std::string kind = "auto";
  bool normalize = false, raw = false, tabs = false, logits = false;
};

// Texts: one buffer of all texts, in the library's form. Pairs: two for each row.
struct Texts {
  std::string bytes;
  std::vector<size_t> lengths;

  void add(std::string_view text) {
    bytes += text;
    lengths.push_back(text.size());
  }
};

struct Rows {
  std::vector<float> values;
  size_t width = 0;
  Json report;
};

std::vector<std::string_view> lines_of(std::string_view input) {
  if (input.starts_with("\xef\xbb\xbf")) input.remove_prefix(3);  // a byte-order mark
  std::vector<std::string_view> lines;
  while (!input.empty()) {
    const size_t end = std::min(input.find('\n'), input.size());
    std::string_view line = input.substr(0, end);
    if (line.ends_with('\r')) line.remove_suffix(1);
    lines.push_back(line);
    input.remove_prefix(std::min(end + 1, input.size()));
  }
  return lines;
}

bool reads_pairs(const Arguments& args) { return args.tabs || !args.pairs.empty(); }

Texts read_texts(const Arguments& args) {
  Texts texts;
  if (!args.file.empty() && (!args.texts.empty() || !args.pairs.empty()))
    throw Error(TSR_INVALID_ARGUMENT, "--file is given with --text or --pair, wanted one of them");
  const bool is_piped = args.file.empty() && args.texts.empty() && is_input_piped();
  if (args.file.empty() && args.texts.empty() && !is_piped)
    throw Error(TSR_INVALID_ARGUMENT,
                "no texts: wanted --file TEXTS, a text a line, or --text, which may be given several times");
  if (!args.pairs.empty() && args.pairs.size() != args.texts.size())
    throw Error(TSR_INVALID_ARGUMENT, std::to_string(args.texts.size()) + " --text and " +
                                          std::to_string(args.pairs.size()) +
                                          " --pair, wanted a second text for each");
  for (size_t i = 0; i < args.texts.size(); ++i) {
    texts.add(args.texts[i]);
    if (!args.pairs.empty()) texts.add(args.pairs[i]);
  }
  if (args.file.empty() && !is_piped) return texts;
  const std::string path = is_piped ? "-" : args.file;
  const std::string input = read_file(path);
  check_text(input, path, args.kind, true);
  const std::vector<std::string_view> lines = lines_of(input);
  for (size_t i = 0; i < lines.size(); ++i) {
    if (!args.tabs) {
      texts.add(lines[i]);
      continue;
    }
    const size_t tab = lines[i].find('\t');
    if (tab == std::string_view::npos)
      throw Error(TSR_INVALID_ARGUMENT,
                  (is_piped ? "standard input" : args.file) + ": line " + std::to_string(i + 1) +
                      " has no tab, wanted one between the two texts of a pair (--pairs)");
    texts.add(lines[i].substr(0, tab));
    texts.add(lines[i].substr(tab + 1));
  }
  return texts;
}

Rows compute(const Arguments& args, const std::string& output) {
  Options options = make<Options>(tsr_options_new);
  set_placement(options, args);
  set(options, "seq", args.seq);
  set(options, "batch", args.batch);
  set(options, "output", output);
  set(options, "share_prefixes", int64_t{1});
  set(options, "pooling", args.pooling);
  if (args.normalize || args.raw) set(options, "normalize", int64_t{args.normalize ? 1 : 0});
  if (reads_pairs(args)) set(options, "pairs", int64_t{1});
  set_inference(options, args.inference);
  check_options(options, "embedder");
  const Texts texts = read_texts(args);
  const Runtime runtime = open_runtime(args);
  const Model model = open_model(args, args.model);
  const Embedder embedder = make_interruptible<Embedder>(tsr_embedder_new, runtime, model.get(),
                                                         static_cast<const tsr_options*>(options.get()));
  const auto count = static_cast<int64_t>(texts.lengths.size() / (reads_pairs(args) ? 2 : 1));
  {
    const Interruptible interruptible(runtime);
    interruptible.check(tsr_embedder_start(embedder.get(), texts.bytes.data(), texts.bytes.size(),
                                           texts.lengths.data(), texts.lengths.size()));
    run_steps_with_eta(embedder, tsr_embedder_step, "computed", counted(count, "text"), interruptible, args);
  }
  Rows rows;
  check(tsr_embedder_width(embedder.get(), &rows.width));
  rows.values.resize(static_cast<size_t>(count) * rows.width);
  check(tsr_embedder_rows(embedder.get(), rows.values.data(), rows.values.size(), nullptr));
  rows.report = Json::parse(text(tsr_embedder_report, embedder.get()));
  if (const auto truncated = rows.report["truncated"].get<int64_t>(); truncated > 0 && !args.quiet)
    std::cerr << counted(truncated, "text") << " had more than " << rows.report["seq"].get<int64_t>()
              << " tokens and " << (truncated == 1 ? "was" : "were") << " cut (--seq)\n";
  return rows;
}

void print_embeddings(const Arguments& args, const Rows& rows) {
  const size_t count = rows.width == 0 ? 0 : rows.values.size() / rows.width;
  for (size_t i = 0; i < count; ++i) {
    const auto row = rows.values.begin() + static_cast<ptrdiff_t>(i * rows.width);
    const std::vector<float> values(row, row + static_cast<ptrdiff_t>(rows.width));
    if (args.json) {
      print_json({{"line", i}, {"embedding", values}});
      continue;
    }
    for (size_t c = 0; c < values.size(); ++c) std::cout << (c > 0 ? " " : "") << Json(values[c]).dump();
    std::cout << '\n';
  }
  if (args.json) print_json({{"texts", count}, {"width", rows.width}, {"report", rows.report}});
}

void print_classes(const Arguments& args, const Rows& rows) {
  const std::vector<std::string> labels = rows.report["labels"].get<std::vector<std::string>>();
  const std::string what = rows.report["output"].get<std::string>();
  const size_t count = rows.values.size() / rows.width;
  for (size_t i = 0; i < count; ++i) {
    const float* const row = rows.values.data() + i * rows.width;
    std::vector<size_t> order(rows.width);
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return row[a] > row[b]; });
    if (args.json) {
      Json values = Json::array();
      for (size_t c = 0; c < rows.width; ++c) values.push_back(row[c]);
      print_json({{"line", i}, {"label", labels[order[0]]}, {what, values}});
      continue;
    }
    for (size_t c = 0; c < order.size(); ++c)
      std::cout << (c > 0 ? "\t" : "") << labels[order[c]] << ' ' << row[order[c]];
    std::cout << '\n';
  }
  if (args.json) print_json({{"texts", count}, {"labels", labels}, {"report", rows.report}});
}

void add_shared(CLI::App& command, Arguments& args) {
  command.add_option("model", args.model, ".tsr or GGUF file, or Hugging Face folder")->required();
  command.add_option(
      "--file", args.file,
      "text file, UTF-8, one text a line (-: standard input, the default for a pipe)");
  add_text_kind(command, args.kind);
  command.add_option("--text", args.texts, "a text; may be given several times")->allow_extra_args(false);
  command.add_option("--pair", args.pairs, "the second text of a pair, one for each --text")
      ->allow_extra_args(false);
  command.add_flag("--pairs", args.tabs,
                   "each line of the file has two texts with a tab between them, read together");
  command.add_option(
      "--seq", args.seq,
      "maximum tokens of a text (default: the model file's setting, else its context length, at most 2048)");
  command.add_option("--batch", args.batch, "texts at once, over all devices (default: 8 for each)");
}

}  // namespace

void register_embed(CLI::App& app) {
  auto args = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand("embed", "vectors of texts, to compare and search them");
  command->footer(
      "Example:\n  tessera embed all-MiniLM-L6-v2 --text \"The weather is lovely today.\" --text \"It's so "
      "sunny "
      "outside!\"\n"
      "  tessera embed nomic-embed.gguf --file lines.txt --normalize --json\n"
      "  tessera embed llama.gguf --file lines.txt --pooling last --devices cpu:2 --parallel dp=2\n"
      "A line for each text: its numbers. With --json {\"line\": from 0, \"embedding\": [...]}, then one for "
      "all: "
      "{\"texts\", \"width\",\n\"report\"}.");
  add_shared(*command, *args);
  command->add_option(
      "--pooling", args->pooling,
      "auto, mean, cls or last: the vector of a text is the mean of its tokens', its first or its "
      "last (default: auto: as the model's file says, else mean, and last for decoders)");
  CLI::Option* const normalize =
      command->add_flag("--normalize", args->normalize,
                        "scale vectors to length 1 (default: 1 where the model's file says so)");
  command->add_flag("--no-normalize", args->raw, "never scale them")->excludes(normalize);
  add_inference(*command, args->inference);
  add_placement(*command, *args);
  add_json(*command, *args);
  add_quiet(*command, *args);
  command->callback([args] { print_embeddings(*args, compute(*args, "embedding")); });
}

void register_classify(CLI::App& app) {
  auto args = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand("classify", "the classes that a classifier finds in texts");
  command->footer(
      "Example:\n  tessera classify sentiment-model --text \"What a day!\"\n"
      "  tessera classify cross-encoder --file pairs.tsv --pairs --json\n"
      "A line for each text: labels and probabilities, the likeliest first. With --json {\"line\": from 0, "
      "\"label\": "
      "the likeliest,\n\"probabilities\": [...]} in the labels' order, then one for all: {\"texts\", "
      "\"labels\", "
      "\"report\"}.");
  add_shared(*command, *args);
  command->add_flag("--logits", args->logits, "logits in place of probabilities");
  add_inference(*command, args->inference);
  add_placement(*command, *args);
  add_json(*command, *args);
  add_quiet(*command, *args);
  command->callback(
      [args] { print_classes(*args, compute(*args, args->logits ? "logits" : "probabilities")); });
}

}  // namespace cli
