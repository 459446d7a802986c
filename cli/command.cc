#include "command.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <system_error>

#include "steps.h"

namespace cli {

void add_json(CLI::App& command, Common& common) {
  command.add_flag("--json", common.json, "one JSON object on the last line of stdout");
}

void add_placement(CLI::App& command, Common& common) {
  command.add_option("--devices", common.devices, "cpu:4 | cuda | cuda:0,1")->capture_default_str();
  command.add_option("--parallel", common.parallel,
                     "pin decisions, leave the rest to the planner: dp=2,tp=2,sp,zero=1,mb=4");
  command.add_option("--memory-limit", common.memory_limit, "bytes per device: 2GiB, 512MiB");
  command.add_option("--host-memory-limit", common.host_memory_limit,
                     "host memory for offloaded tensors, all devices together: 8GiB");
  command.add_option("--plan", common.plan_file,
                     "use this plan (from `tessera plan -o`) instead of planning");
  command.add_option("--profile", common.profile,
                     "prices of these devices: a file of `tessera calibrate`, none, or auto: the one that it "
                     "keeps, if any (default: TESSERA_PROFILE, else auto)");
  command
      .add_option("--measure", common.measure,
                  "run so many of the plans predicted fastest for a moment, and take the fastest of them")
      ->check(CLI::Range(0, 64));
  command.add_flag("--tune", common.tune,
                   "time the algorithms of products that the profile does not know yet, and keep the fastest "
                   "in it (cuda)");
  command.add_option("--threads", common.threads, "threads for kernels; 0: all cores of this process")
      ->capture_default_str();
}

void set_placement(const Options& options, const Common& common) {
  set(options, "devices", common.devices);
  if (!common.parallel.empty()) set(options, "parallel", common.parallel);
  if (!common.memory_limit.empty()) set(options, "memory_limit", common.memory_limit);
  if (!common.host_memory_limit.empty()) set(options, "host_memory_limit", common.host_memory_limit);
  if (!common.plan_file.empty()) set(options, "plan_file", common.plan_file);
  if (!common.profile.empty()) set(options, "profile", common.profile);
  if (common.measure > 0) set(options, "measure", common.measure);
  if (common.tune) set(options, "tune", int64_t{1});
}

namespace {

// Prints a log record. On a terminal it replaces a line of progress, which is printed again below.
void print_record(void*, int32_t, const char* text) {
  std::cerr << (std::string(isatty(STDERR_FILENO) == 1 ? "\r\x1b[K" : "") + text + '\n') << std::flush;
}

}  // namespace

Runtime open_runtime(const Common& common) {
  Options options = make<Options>(tsr_options_new);
  if (common.threads != 0) set(options, "threads", common.threads);
  Runtime runtime = make<Runtime>(tsr_runtime_new, options.get());
  check(tsr_runtime_set_log(runtime.get(), print_record, nullptr, nullptr));
  return runtime;
}

void add_adapter_file(CLI::App& command, Common& common) {
  command.add_option(
      "--adapter", common.adapter,
      "adapters made for this model: a folder of PEFT's, or a GGUF adapter (docs/guides/adapters.md)");
}

namespace {

Model with_adapter_file(const Common& common, Model model) {
  if (common.adapter.empty()) return model;
  return make<Model>(tsr_model_load_adapters, model.get(), common.adapter.c_str(),
                     static_cast<const tsr_options*>(nullptr));
}

}  // namespace

Model open_model(const Common& common, const std::string& text, int64_t seed, bool verify) {
  std::error_code ignored;
  Options options = make<Options>(tsr_options_new);
  if (!verify && !std::filesystem::exists(text, ignored) && text.find(':') != std::string::npos) {
    set(options, "seed", seed);
    return with_adapter_file(common, make<Model>(tsr_model_new, text.c_str(), options.get()));
  }
  set(options, "verify", int64_t{verify});
  const Work loading = make<Work>(tsr_model_begin_load, static_cast<tsr_runtime*>(nullptr), text.c_str(),
                                        static_cast<const tsr_options*>(options.get()));
  run_steps(loading, "loading " + text, common);
  return with_adapter_file(common, make<Model>(tsr_model_finish, loading.get()));
}

void add_adapter_options(CLI::App& command, Adapters& adapters) {
  command
      .add_option("--lora", adapters.rank,
                  "train low-rank adapters of this rank beside the weights of every block, which are frozen")
      ->check(CLI::Range(1, 1 << 20));
  command.add_option("--lora-alpha", adapters.alpha,
                     "what adapters add counts alpha / rank times (default: the rank)");
  command.add_option("--lora-on", adapters.on,
                     "weights that get adapters, by their names or those of Hugging Face's modules: "
                     "q_proj,v_proj or block.*.q.weight or all-linear or re:EXPRESSION");
  command.add_option("--lora-exclude", adapters.exclude, "weights that get none, likewise");
  command.add_option("--lora-layers", adapters.layers, "blocks whose weights get adapters: 0,2,5-7");
  command.add_option("--lora-ranks", adapters.ranks,
                     "ranks of single weights, the first that matches: q_proj=4,block.0.*=2");
  command.add_option("--lora-alphas", adapters.alphas, "alphas of single weights, likewise");
  command.add_flag("--rslora", adapters.rslora, "what adapters add counts alpha / root of the rank times");
  command.add_flag("--dora", adapters.dora, "magnitudes of each output's weight train as well (DoRA)");
  command.add_option("--lora-init", adapters.init,
                     "zero (default), or pissa: adapters begin as the principal part of their weights");
  command.add_option("--lora-dropout", adapters.dropout,
                     "probability that adapters do not see an input while training (default 0)");
  command.add_option("--lora-also", adapters.also,
                     "parameters that train in full besides: *norm*,token_embedding or embed_tokens,lm_head");
}

Options adapter_options(const Adapters& adapters) {
  Options options = make<Options>(tsr_options_new);
  if (adapters.rank != 0) set(options, "rank", adapters.rank);
  if (adapters.alpha) set(options, "alpha", *adapters.alpha);
  if (adapters.dropout) set(options, "dropout", *adapters.dropout);
  for (const auto& [key, value] : {std::pair("on", &adapters.on), std::pair("exclude", &adapters.exclude),
                                   std::pair("layers", &adapters.layers), std::pair("ranks", &adapters.ranks),
                                   std::pair("alphas", &adapters.alphas), std::pair("init", &adapters.init),
                                   std::pair("also", &adapters.also)})
    if (!value->empty()) set(options, key, *value);
  if (adapters.rslora) set(options, "rslora", int64_t{1});
  if (adapters.dora) set(options, "dora", int64_t{1});
  return options;
}

bool has_adapter_options(const Adapters& adapters) {
  return adapters.alpha || adapters.dropout || adapters.rslora || adapters.dora ||
         std::ranges::any_of(std::array{&adapters.on, &adapters.exclude, &adapters.layers, &adapters.ranks,
                                        &adapters.alphas, &adapters.init, &adapters.also},
                             [](const std::string* text) { return !text->empty(); });
}

Model adapted(Model model, const Adapters& adapters) {
  if (adapters.rank == 0) {
    if (has_adapter_options(adapters))
      throw Error(
          TSR_INVALID_ARGUMENT,
          "--lora-alpha, --lora-on, --lora-exclude, --lora-layers, --lora-ranks, --lora-alphas, --lora-init, "
          "--lora-dropout, --rslora, --dora and --lora-also belong to --lora RANK, which is missing");
    return model;
  }
  const Options options = adapter_options(adapters);
  return make<Model>(tsr_model_add_adapters, model.get(), static_cast<const tsr_options*>(options.get()));
}

Adapters missing_adapters(const std::string& checkpoint, const Model& model) {
  const Json saved = Json::parse(text(tsr_checkpoint_info, checkpoint.c_str()));
  if (saved["adapters"].is_null()) return {};
  const Json info = Json::parse(text(tsr_model_info, model.get()));
  for (const Json& tensor : info["tensors"])
    if (tensor["name"].get<std::string>().ends_with(".lora_a")) return {};
  const Json& adapters = saved["adapters"];
  const auto text_of = [&](const char* key) { return adapters.value(key, std::string()); };
  Adapters made;
  made.rank = adapters["rank"].get<int64_t>();
  made.alpha = adapters["alpha"].get<double>();
  if (const std::string dropout = text_of("dropout"); !dropout.empty()) made.dropout = std::stod(dropout);
  made.on = text_of("on"), made.also = text_of("also"), made.init = text_of("init");
  made.ranks = text_of("ranks"), made.alphas = text_of("alphas");
  made.rslora = text_of("rslora") == "1", made.dora = text_of("dora") == "1";
  return made;
}

Tokenizer open_tokenizer(const std::string& text) {
  if (text == "bytes") return make<Tokenizer>(tsr_tokenizer_new_bytes);
  std::error_code ignored;
  if (!std::filesystem::exists(text, ignored))
    throw Error(
        TSR_NOT_FOUND,
        "tokenizer '" + text +
            "': there is no such file; wanted `bytes`, a .tsr or GGUF file, or a Hugging Face folder");
  return make<Tokenizer>(tsr_tokenizer_load, text.c_str());
}

Tokenizer model_tokenizer(const Model& model, const std::string& path) {
  try {
    return make<Tokenizer>(tsr_model_tokenizer, model.get());
  } catch (const Error& error) {
    if (error.code() != TSR_NOT_FOUND) throw;
    throw Error(TSR_NOT_FOUND,
                path + " has no tokenizer; make the model with `tessera new … --tokenizer bytes|FILE`");
  }
}

void add_data(CLI::App& command, std::string& path) {
  command
      .add_option(
          "--data", path,
          "text file, UTF-8, or rows of JSON: conversations, prompts with completions, texts, one a line or "
          "in "
          "an array (docs/guides/training-data.md); - for standard input; several files of rows: [{\"path\": FILE, "
          "\"weight\": N}, ...]")
      ->required();
}

Dataset open_dataset(const Common& common, const std::string& path, const Tokenizer& tokenizer,
                     const Options& options) {
  const Work reading = make<Work>(tsr_dataset_begin_file, static_cast<tsr_runtime*>(nullptr),
                                        path.c_str(), static_cast<const tsr_tokenizer*>(tokenizer.get()),
                                        static_cast<const tsr_options*>(options.get()));
  run_steps(reading, "reading " + path, common);
  return make<Dataset>(tsr_dataset_finish, reading.get());
}

Plan make_plan(const Common& common, const Runtime& runtime, const Model& model, const Options& options) {
  const Work planning = make<Work>(tsr_plan_begin, runtime.get(), model.get(),
                                           static_cast<const tsr_options*>(options.get()));
  run_steps(planning, "planning", common);
  return make<Plan>(tsr_plan_finish, planning.get());
}

Json convert(const Common& common, const Work& conversion, const std::string& doing) {
  Progress progress(common, kQuietS);
  const Interruptible interruptible;  // to the end: a killed process leaves a partial file
  run_steps(conversion, doing, interruptible, progress);
  Json report = Json::parse(text(tsr_conversion_finish, conversion.get()));
  if (report.contains("notes"))
    for (const Json& note : report["notes"]) progress.say("note: " + note.get<std::string>());
  return report;
}

Json convert(const Common& common, const std::string& doing, const std::string& input,
             const std::string& output, const Options& options) {
  const Work conversion = make<Work>(tsr_conversion_begin, static_cast<tsr_runtime*>(nullptr), input.c_str(),
                                     output.c_str(), static_cast<const tsr_options*>(options.get()));
  return convert(common, conversion, doing + " " + input);
}

void save_model(const Common& common, const Model& model, const std::string& path) {
  const Work conversion =
      make<Work>(tsr_conversion_begin_for_model, static_cast<tsr_runtime*>(nullptr), model.get(),
                       path.c_str(), static_cast<const tsr_options*>(nullptr));
  (void)convert(common, conversion, "writing " + path);
}

std::string read_file(const std::string& path, int64_t most) {
  return text(tsr_text_read, path.c_str(), static_cast<size_t>(most));
}

void write_file(const std::string& path, const std::string& content) {
  check(tsr_text_write(content.data(), content.size(), path.c_str()));
}

bool is_input_piped() {
  struct stat about {};
  return fstat(STDIN_FILENO, &about) == 0 && (S_ISFIFO(about.st_mode) || S_ISREG(about.st_mode));
}

std::string read_piped_text() {
  std::string text = read_file("-");
  if (text.ends_with('\n')) text.pop_back();
  if (text.ends_with('\r')) text.pop_back();
  return text;
}

void check_text(const std::string& text, const std::string& path, const std::string& kind,
                bool takes_tables) {
  if (kind == "plain") return;
  const std::string name = path == "-" ? "standard input" : path;
  check(tsr_text_check(text.data(), text.size(), name.c_str(), takes_tables ? 1 : 0));
}

void add_text_kind(CLI::App& command, std::string& kind) {
  command
      .add_option("--kind", kind,
                  "auto: rows of JSON, tables, binary files and what is not UTF-8 are refused; plain: the "
                  "file is one text "
                  "whatever it looks like")
      ->check(CLI::IsMember({"auto", "plain"}))
      ->capture_default_str();
}

void check_output(const std::string& path, Output output) {
  if (path.empty()) return;
  if (path == "-")
    throw Error(TSR_INVALID_ARGUMENT,
                "found the name - for a file to write, and standard output has what the command prints; wanted the "
                "name of a file (./- for that one)");
  check(output == Output::kModel ? tsr_model_check_path(path.c_str())
                                 : tsr_text_check_path(path.c_str(), output == Output::kText ? 1 : 0));
}

void print_json(const Json& object) {
  std::cout << object.dump(-1, ' ', false, Json::error_handler_t::replace) << std::endl;
}

std::string bytes_text(int64_t bytes) {
  static constexpr std::array<const char*, 5> kUnits = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  for (; value >= 1024 && unit + 1 < kUnits.size(); ++unit) value /= 1024;
  std::array<char, 48> buffer;
  std::snprintf(buffer.data(), buffer.size(), unit == 0 ? "%.0f %s" : "%.2f %s", value, kUnits[unit]);
  return buffer.data();
}

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

}  // namespace cli
