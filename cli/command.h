// Common options of commands: placement, and opening of models, tokenizers and datasets. Each command is a file of
// its own and a row in main.cc.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "handle.h"

namespace cli {

using Json = nlohmann::ordered_json;

// Adds the sub-command to `app`; its callback does the work and throws Error.
using Register = void (*)(CLI::App& app);

void register_devices(CLI::App& app);
void register_import(CLI::App& app);
void register_export(CLI::App& app);
void register_quantize(CLI::App& app);
void register_imatrix(CLI::App& app);
void register_inspect(CLI::App& app);
void register_new(CLI::App& app);
void register_tokenize(CLI::App& app);
void register_plan(CLI::App& app);
void register_train(CLI::App& app);
void register_eval(CLI::App& app);
void register_score(CLI::App& app);
void register_embed(CLI::App& app);
void register_classify(CLI::App& app);
void register_generate(CLI::App& app);
void register_chat(CLI::App& app);
void register_bench(CLI::App& app);
void register_calibrate(CLI::App& app);
void register_merge(CLI::App& app);
void register_resize(CLI::App& app);
void register_adapt(CLI::App& app);
void register_data(CLI::App& app);
void register_serve(CLI::App& app);

// The options shared by several commands.
struct Common {
  std::string devices = "cpu:1";
  std::string parallel;
  std::string memory_limit, host_memory_limit;
  std::string plan_file, profile;
  std::string adapter;
  int64_t seed = 0;
  int64_t threads = 0;
  int64_t measure = 0;
  bool tune = false;
  bool json = false;
  bool quiet = false;
  std::string processes = "auto";
  double process_timeout = 30;
};
void add_json(CLI::App& command, Common& common);
void add_placement(CLI::App& command,
                   Common& common);  // --devices --parallel --memory-limit --plan --threads
void set_placement(const Options& options, const Common& common);

// Opens a runtime whose log records go to stderr at once. With several processes only the first one prints and writes files from
// here on; the others print their errors.
Runtime open_runtime(const Common& common);
bool is_first_process();
// Whether another process has the engine's requests; then waits until it has freed its engine.
bool follow(const Engine& engine);
// Prints an error, with the number of the process if it is not the first of several.
void print_error(const std::string& message);

// --adapter: a folder of another project's adapters, applied by open_model.
void add_adapter_file(CLI::App& command, Common& common);

// A file (.tsr, GGUF), or a description such as "llama:L=2,C=64" when no such
// file exists. `verify`: checks a file's checksums. Shows progress if slow.
Model open_model(const Common& common, const std::string& text, int64_t seed = 0, bool verify = false);

// "bytes", or the tokenizer of a .tsr or GGUF file.
Tokenizer open_tokenizer(const std::string& text);
Tokenizer model_tokenizer(const Model& model, const std::string& path);

// Adds --data, the path of a text.
void add_data(CLI::App& command, std::string& path);
Dataset open_dataset(const Common& common, const std::string& path, const Tokenizer& tokenizer,
                     const Options& options);
Plan make_plan(const Common& common, const Runtime& runtime, const Model& model, const Options& options);
void save_model(const Common& common, const Model& model, const std::string& path);
// Reads `input` to its last checksum and writes `output`, and prints the notes of the report of
// tsr_conversion_finish: parts without a place in a GGUF file. `doing` begins the line of progress: "importing".
Json convert(const Common& common, const std::string& doing, const std::string& input, const std::string& output,
             const Options& options);

void print_json(const Json& object);  // on one line of stdout, reals exact
std::string bytes_text(int64_t bytes);
double median(std::vector<double> values);

}  // namespace cli
