#include "command.h"

#include <fcntl.h>
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
                     "device profile: a file written by `tessera calibrate`; none; or auto, the profile stored for "
                     "these devices, if any (default: TESSERA_PROFILE, else auto)");
  command
      .add_option("--measure", common.measure,
                  "time this many of the plans predicted fastest, and take the fastest")
      ->check(CLI::Range(0, 64));
  command.add_flag("--tune", common.tune,
                   "benchmark the matmul algorithms missing in the profile, and store the fastest there (CUDA)");
  command.add_option("--processes", common.processes, "auto: with the processes that mpirun or srun started; none: alone")
      ->check(CLI::IsMember({"auto", "none"}))
      ->capture_default_str();
  command.add_option("--process-timeout", common.process_timeout, "seconds after which a process that is not heard of is lost; 0: never")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
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

int64_t process = 0;    // of several that run together
int error_output = -1;  // -1: std::cerr

std::string format_process() { return process > 0 ? "tessera (process " + std::to_string(process) + "): " : "tessera: "; }

// Results and progress go nowhere from here on; errors still do.
void silence() {
  error_output = dup(STDERR_FILENO);
  for (const int stream : {STDOUT_FILENO, STDERR_FILENO})
    if (const int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC); nowhere >= 0) {
      dup2(nowhere, stream);
      close(nowhere);
    }
}

// Prints a log record. On a terminal it replaces a line of progress, which is printed again below.
void print_record(void*, int32_t, const char* text) {
  std::cerr << (std::string(isatty(STDERR_FILENO) == 1 ? "\r\x1b[K" : "") + text + '\n') << std::flush;
}

// Records of the time before the log had a function.
void print_earlier_records(const Runtime& runtime) {
  while (true) {
    int32_t level = 0;
    size_t size = 0;
    check(tsr_runtime_next_log(runtime.get(), &level, nullptr, 0, &size));
    if (size == 0) return;
    std::string record(size + 1, '\0');
    check(tsr_runtime_next_log(runtime.get(), &level, record.data(), record.size(), &size));
    print_record(nullptr, level, record.c_str());
  }
}

}  // namespace

Runtime open_runtime(const Common& common) {
  Options options = make<Options>(tsr_options_new);
  if (common.threads != 0) set(options, "threads", common.threads);
  set(options, "processes", common.processes);
  set(options, "process_timeout", common.process_timeout);
  Runtime runtime = make<Runtime>(tsr_runtime_new, options.get());
  const Json world = Json::parse(text(tsr_runtime_world, runtime.get()));
  if (process = world["process"].get<int64_t>(); process > 0) {
    silence();
    return runtime;
  }
  print_earlier_records(runtime);
  check(tsr_runtime_set_log(runtime.get(), print_record, nullptr, nullptr));
  return runtime;
}

bool is_first_process() { return process == 0; }

bool follow(const Engine& engine) {
  if (is_first_process()) return false;
  tsr_event event{};
  event.struct_size = sizeof event;
  check(tsr_engine_next(engine.get(), -1, &event));
  return true;
}

void print_error(const std::string& message) {
  const std::string line = format_process() + message + '\n';
  if (error_output < 0)
    std::cerr << line;
  else
    (void)!write(error_output, line.data(), line.size());
}

void add_adapter_file(CLI::App& command, Common& common) {
  command.add_option(
      "--adapter", common.adapter,
      "adapters of this model: a PEFT folder or a GGUF adapter (docs/guides/adapters.md)");
}

namespace {

Model load_adapter_file(const Common& common, Model model) {
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
    return load_adapter_file(common, make<Model>(tsr_model_new, text.c_str(), options.get()));
  }
  set(options, "verify", int64_t{verify});
  const Work loading = make<Work>(tsr_model_begin_load, static_cast<tsr_runtime*>(nullptr), text.c_str(),
                                        static_cast<const tsr_options*>(options.get()));
  run_steps(loading, "loading " + text, common);
  return load_adapter_file(common, make<Model>(tsr_model_finish, loading.get()));
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
          "text file, UTF-8, or rows of JSON: conversations, prompts with completions, texts, one a line or in an "
          "array (docs/guides/training-data.md); - for standard input; several files of rows: [{\"path\": FILE, "
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
  const Interruptible interruptible;  // lives until the report is read: Ctrl-C ends a step, so that no partial file is left
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
