#include <algorithm>
#include <cstdio>
#include <iostream>
#include <iterator>
#include <memory>
#include <optional>
#include <random>

#include "bench_serve.h"
#include "command.h"
#include "interruptible.h"
#include "kernel_times.h"
#include "plan_text.h"

namespace cli {

namespace {
struct Arguments : Common {
  std::string model, mode = "train", precision, weights, fused_loss;
  int64_t batch = 8, seq = 128, steps = 7, tokens = 64;
  double peak_tflops = 0, product_tflops = 0, copy_gbs = 0;
  bool kernels = false;
  ServeLoad load;
};

// Number of rows in a table of kernels.
constexpr size_t kRows = 14;
// Number of runs averaged in a table of kernels, after the warm-up (loading and capture).
constexpr int64_t kTracedRuns = 3, kTracedTokens = 16, kWarmUps = 2;
constexpr const char* kTokenEntry = "serve.1";  // of a generator's program: computes one token

// Sizes of a language model for counts of operations.
struct Sizes {
  int64_t vocabulary = 0, parameters = 0;
  int64_t positions = 0;       // elements of a learned table of positions
  int64_t block_products = 0;  // elements of the matrices of blocks: each multiplies every token
  int64_t attention = 0;       // sum over layers of heads times head size
};

Sizes sizes_of(const Json& info) {
  Sizes sizes;
  for (const Json& output : info["outputs"])
    if (output["name"] == "logits") sizes.vocabulary = output["shape"].back().get<int64_t>();
  if (sizes.vocabulary == 0)
    throw Error(TSR_INVALID_ARGUMENT, "bench needs a language model: an output \"logits\" [B, T, V]");
  sizes.parameters = info["parameters"];
  for (const Json& tensor : info["tensors"]) {
    const std::string name = tensor["name"];
    const Json& shape = tensor["shape"];
    if (shape.size() < 2) continue;
    int64_t elements = 1;
    for (const Json& extent : shape) elements *= extent.get<int64_t>();
    if (name == "position_embedding") sizes.positions = elements;
    if (!name.starts_with("block.")) continue;
    sizes.block_products += elements;
    if (name.ends_with(".q") || name.ends_with(".q.weight")) sizes.attention += shape[0].get<int64_t>();
  }
  return sizes;
}

// Operations of training on one token, counted as in the PaLM paper (appendix B):
// 6 a parameter, without a table of positions, and 12 for each layer, channel of
// its attention and token of the sequence; masks and recomputation left out.
double flops_per_token(const Sizes& sizes, int64_t seq) {
  return 6.0 * static_cast<double>(sizes.parameters - sizes.positions) +
         12.0 * static_cast<double>(sizes.attention) * static_cast<double>(seq);
}

// Dense bf16 with f32 sums, from the data sheets; 0 for unlisted devices.
double known_peak(const std::string& device) {
  struct Peak {
    const char* name;
    double flops_per_s;
  };
  static constexpr Peak kPeaks[] = {{"H100 PCIe", 756e12}, {"H100 NVL", 835e12}, {"H100", 989e12},
                                    {"H200", 989e12},      {"B200", 2250e12},    {"A100", 312e12},
                                    {"L40S", 362e12}};
  for (const Peak& peak : kPeaks)
    if (device.find(peak.name) != std::string::npos) return peak.flops_per_s;
  return 0;
}

Json devices_info(const Arguments& args, const Runtime& runtime) {
  const Devices devices =
      make<Devices>(tsr_devices_open, runtime.get(), static_cast<const char*>(args.devices.c_str()));
  return Json::parse(text(tsr_devices_info, static_cast<const tsr_devices*>(devices.get())));
}

// The measured and given ceilings, else the backend's nominal ones.
Ceilings ceilings(const Arguments& args, const Json& devices) {
  const Json& device = devices["devices"][0];
  return {args.copy_gbs > 0 ? args.copy_gbs * 1e9 : device["memory_bytes_per_s"].get<double>(),
          args.product_tflops > 0 ? args.product_tflops * 1e12 : device["matmul_flops_per_s"].get<double>()};
}

Options common_options(const Arguments& args, bool trace) {
  Options options = make<Options>(tsr_options_new);
  set_placement(options, args);
  if (!args.precision.empty()) set(options, "precision", args.precision);
  if (!args.weights.empty()) set(options, "weights", args.weights);
  if (trace) set(options, "trace", int64_t{1});
  return options;
}

Dataset random_tokens(const Arguments& args, int64_t vocabulary) {
  std::mt19937 random(1);
  std::vector<int32_t> ids(static_cast<size_t>(args.batch * args.seq * 4 + 1));
  for (int32_t& id : ids) id = static_cast<int32_t>(random() % static_cast<uint64_t>(vocabulary));
  Options options = make<Options>(tsr_options_new);
  set(options, "seq", args.seq);
  return make<Dataset>(tsr_dataset_new_tokens, static_cast<const int32_t*>(ids.data()), ids.size(),
                       static_cast<const tsr_options*>(options.get()));
}

Trainer new_trainer(const Arguments& args, const Runtime& runtime, const Model& model, const Dataset& dataset,
                    bool trace) {
  Options options = common_options(args, trace);
  set(options, "batch", args.batch);
  set(options, "seq", args.seq);
  set(options, "clip_norm", 0.0);
  set(options, "measure_memory", int64_t{0});
  if (!args.fused_loss.empty()) set(options, "fused_loss", args.fused_loss);
  return make_interruptible<Trainer>(tsr_trainer_new, runtime, model.get(),
                                     static_cast<const tsr_dataset*>(dataset.get()),
                                     static_cast<const tsr_options*>(options.get()));
}

double step_seconds(const Trainer& trainer) {
  tsr_step step{};
  step.struct_size = sizeof step;
  check(tsr_trainer_step(trainer.get(), &step));
  return step.seconds;
}

Json traced_steps(const Arguments& args, const Runtime& runtime, const Model& model, const Dataset& dataset,
                  const Ceilings& limits) {
  const Trainer trainer = new_trainer(args, runtime, model, dataset, true);
  for (int64_t i = 0; i < kWarmUps; ++i) step_seconds(trainer);
  (void)text(tsr_trainer_take_trace, trainer.get());
  for (int64_t i = 0; i < kTracedRuns; ++i) step_seconds(trainer);
  return kernel_times(text(tsr_trainer_take_trace, trainer.get()), "train_step", limits);
}

// A training step on random tokens: batch and seq as given, AdamW without clipping.
// The first step, and on backends that capture the second, are not counted.
Json bench_train(const Arguments& args, const Runtime& runtime, const Model& model, const Sizes& sizes) {
  const Dataset dataset = random_tokens(args, sizes.vocabulary);
  const Json devices = devices_info(args, runtime);
  Json result;
  {
    const Trainer trainer = new_trainer(args, runtime, model, dataset, false);
    std::vector<double> seconds;
    const int64_t uncounted = devices["shared_cores"].get<int64_t>() > 0 ? 1 : kWarmUps;
    for (int64_t i = 0; i < uncounted; ++i) step_seconds(trainer);
    for (int64_t i = 0; i < args.steps; ++i) seconds.push_back(step_seconds(trainer));
    const Json report = Json::parse(text(tsr_trainer_report, trainer.get()));
    const double step_s = median(seconds), tokens = static_cast<double>(args.batch * args.seq);
    result = {{"mode", "train"},
              {"step_seconds", step_s},
              {"tokens_per_second", tokens / step_s},
              {"parameters", sizes.parameters},
              {"flops_per_token", flops_per_token(sizes, args.seq)},
              {"model_flops_per_second", flops_per_token(sizes, args.seq) * tokens / step_s}};
    const Json& listed = devices["devices"];
    const double peak =
        args.peak_tflops > 0 ? args.peak_tflops * 1e12 : known_peak(listed[0]["kind"].get<std::string>());
    if (peak > 0) {
      result["peak_flops_per_second"] = peak;
      result["mfu"] =
          result["model_flops_per_second"].get<double>() / (peak * static_cast<double>(listed.size()));
    }
    result["seconds"] = seconds;
    result["plan"] = report["plan"]["strategy"];
    result["predicted_step_seconds"] = report["plan"]["predicted_step_seconds"];
    result["devices"] = report["devices"];
  }
  if (args.kernels) result["kernels"] = traced_steps(args, runtime, model, dataset, ceilings(args, devices));
  return result;
}

Generator new_generator(const Arguments& args, const Runtime& runtime, const Model& model, bool trace) {
  Options options = common_options(args, trace);
  set(options, "temperature", 0.0);
  set(options, "max_tokens", trace ? std::min(args.tokens, kTracedTokens) : args.tokens);
  set(options, "context", args.seq + args.tokens + 1);
  return make_interruptible<Generator>(tsr_generator_new, runtime, model.get(), options.get());
}

// Greedy decoding of `tokens` tokens after a prompt of `seq`.
Json generate_once(const Generator& generator, const std::vector<int32_t>& prompt) {
  check(tsr_generator_start_tokens(generator.get(), prompt.data(), prompt.size()));
  tsr_piece piece{};
  piece.struct_size = sizeof piece;
  do check(tsr_generator_next(generator.get(), -1, &piece));
  while (piece.kind != TSR_END);
  return Json::parse(text(tsr_generator_report, generator.get()));
}

// Varies prompt `number` by a token of its own at the start: pages keep the prefixes that prompts share.
std::vector<int32_t> vary_prompt(std::vector<int32_t> prompt, int64_t number, const Sizes& sizes) {
  prompt.front() = static_cast<int32_t>(number % sizes.vocabulary);
  return prompt;
}

// Traced runs of the same text with fewer tokens: a token's time outside of matrix
// products (other kernels, launches, the host between two tokens), and its kernels.
void add_traced_tokens(const Arguments& args, const Runtime& runtime, const Model& model, const Sizes& sizes,
                       const std::vector<int32_t>& prompt, Json& result) {
  const Generator generator = new_generator(args, runtime, model, true);
  const Ceilings limits = ceilings(args, devices_info(args, runtime));
  std::vector<double> outside;
  Json times;
  for (int64_t i = 0; i <= kTracedRuns; ++i) {
    const Json report = generate_once(generator, vary_prompt(prompt, i, sizes));
    const std::string trace = text(tsr_generator_take_trace, generator.get());
    if (i == 0) continue;
    times = kernel_times(trace, kTokenEntry, limits);
    const double token_s = report["decode_seconds"].get<double>() / (report["tokens"].get<double>() - 1);
    outside.push_back((token_s - product_seconds(times)) * 1e6);
  }
  result["microseconds_outside_products_per_token"] = median(outside);
  if (args.kernels) result["kernels"] = times;
}

Json bench_decode(const Arguments& args, const Runtime& runtime, const Model& model, const Sizes& sizes) {
  std::vector<int32_t> prompt(static_cast<size_t>(args.seq));
  for (size_t i = 0; i < prompt.size(); ++i)
    prompt[i] = static_cast<int32_t>((i * 7 + 3) % static_cast<size_t>(sizes.vocabulary));
  Json result;
  {
    const Generator generator = new_generator(args, runtime, model, false);
    std::vector<double> prefill, decode;
    Json report;
    for (int64_t i = 0; i <= args.steps; ++i) {
      report = generate_once(generator, vary_prompt(prompt, i, sizes));
      if (i == 0) continue;
      prefill.push_back(report["prompt_tokens"].get<double>() / report["prefill_seconds"].get<double>());
      // The first token is the prompt's.
      decode.push_back((report["tokens"].get<double>() - 1) / report["decode_seconds"].get<double>());
    }
    const Json& reads = report["token_reads"];
    // Caches are counted half full, as in the middle of the text.
    const double kept = static_cast<double>(args.seq) + static_cast<double>(args.tokens) / 2;
    const double bytes =
        reads["parameter_bytes"].get<double>() +
        reads["full_cache_bytes"].get<double>() * kept / static_cast<double>(args.seq + args.tokens + 1);
    result = {{"mode", "decode"},
              {"prefill_tokens_per_second", median(prefill)},
              {"reused_tokens", report["reused_tokens"]},
              {"decode_tokens_per_second", median(decode)},
              {"parameters", sizes.parameters},
              {"bytes_per_token", bytes},
              {"decode_bytes_per_second", bytes * median(decode)},
              {"launches_per_token", report["launches_per_token"]},
              // Products of blocks alone: the head computes only the last token of a chunk.
              {"prefill_flops_per_second", 2.0 * static_cast<double>(sizes.block_products) * median(prefill)},
              {"devices", report["devices"]}};
  }
  add_traced_tokens(args, runtime, model, sizes, prompt, result);
  return result;
}

Json bench_serving(const Arguments& args, const Runtime& runtime, const Model& model, const Sizes& sizes) {
  const Json devices = devices_info(args, runtime);
  // Devices that share the cores share the memory.
  const bool shared = devices["shared_cores"].get<int64_t>() > 0;
  const double count = shared ? 1 : static_cast<double>(devices["devices"].size());
  return bench_serve(args.load, {.runtime = runtime,
                                 .model = model,
                                 .options = [&] { return common_options(args, false); },
                                 .vocabulary = sizes.vocabulary,
                                 .memory_bytes_per_s = count * ceilings(args, devices).bytes_per_s,
                                 .cache_element_bytes = args.precision == "bf16" ? 2 : 4});
}

// Refuses options without effect in this mode.
void refuse_idle_options(const CLI::App& command, const std::string& mode) {
  const auto given = [&](std::initializer_list<const char*> names, const char* of) {
    for (const char* name : names)
      if (command.count(name) > 0)
        throw Error(TSR_INVALID_ARGUMENT,
                    std::string(name) + ": belongs to --mode " + of + ", and this is " + mode);
  };
  if (mode == "serve")
    given({"--seq", "--tokens", "--steps", "--batch", "--kernels", "--fused-loss", "--peak-tflops"},
          "train or decode");
  else
    given({"--clients", "--prompt", "--new", "--shared", "--requests", "--rate"}, "serve");
  if (const std::string name = given_serving(command); mode != "serve" && !name.empty())
    given({name.c_str()}, "serve");
}

// "12.6 GB/s"; `unit` after the prefix: "FLOP/s", "B/s".
std::string scaled_text(double value, const std::string& unit) {
  constexpr const char* kPrefixes[] = {"", "k", "M", "G", "T", "P"};
  size_t prefix = 0;
  for (; value >= 1000 && prefix + 1 < std::size(kPrefixes); ++prefix) value /= 1000;
  char text[48];
  std::snprintf(text, sizeof text, "%.3g ", value);
  return text + (kPrefixes[prefix] + unit);
}

void print_train(const Json& result) {
  const auto real = [&](const char* key) { return result[key].get<double>(); };
  const Json& rounds = result["seconds"];
  const auto [fastest, slowest] = std::minmax_element(rounds.begin(), rounds.end());
  std::cout << "step       " << seconds_text(real("step_seconds")) << ", the median of " << rounds.size()
            << " (" << seconds_text(fastest->get<double>()) << " to " << seconds_text(slowest->get<double>())
            << ")\n"
            << "predicted  " << seconds_text(real("predicted_step_seconds")) << " by plan "
            << result["plan"].get<std::string>() << '\n'
            << "speed      " << rate_text(real("tokens_per_second")) << " tokens/s\n"
            << "model      " << result["parameters"].get<int64_t>() << " parameters, "
            << scaled_text(real("flops_per_token"), "FLOP") << " a token, "
            << scaled_text(real("model_flops_per_second"), "FLOP/s") << '\n';
  if (result.contains("mfu"))
    std::cout << "mfu        " << percent_text(real("mfu")) << " of "
              << scaled_text(real("peak_flops_per_second"), "FLOP/s") << " a device\n";
}

void print_decode(const Json& result) {
  const auto real = [&](const char* key) { return result[key].get<double>(); };
  std::cout << "prefill    " << rate_text(real("prefill_tokens_per_second")) << " tokens/s, "
            << scaled_text(real("prefill_flops_per_second"), "FLOP/s") << '\n'
            << "decode     " << rate_text(real("decode_tokens_per_second")) << " tokens/s, "
            << seconds_text(1 / real("decode_tokens_per_second")) << " a token, "
            << scaled_text(real("decode_bytes_per_second"), "B/s") << '\n'
            << "token      " << result["launches_per_token"].get<int64_t>() << " launches, "
            << seconds_text(real("microseconds_outside_products_per_token") * 1e-6)
            << " outside matrix products\n"
            << "model      " << result["parameters"].get<int64_t>() << " parameters, a token reads "
            << bytes_text(static_cast<int64_t>(real("bytes_per_token"))) << '\n';
}

void print_result(const Json& result) {
  result["mode"] == "train"    ? print_train(result)
  : result["mode"] == "decode" ? print_decode(result)
                               : print_serve(result);
  for (const Json& device : result["devices"]) {
    std::cout << "memory     " << device["name"].get<std::string>() << "  arena "
              << bytes_text(device["arena_bytes"]["predicted"]);
    if (device.contains("device_bytes"))
      std::cout << ", device predicted " << bytes_text(device["device_bytes"]["predicted"]) << ", measured "
                << bytes_text(device["device_bytes"]["measured"]);
    std::cout << '\n';
  }
  if (result.contains("kernels")) std::cout << kernel_table(result["kernels"], kRows);
}

void run_bench(const CLI::App& command, const Arguments& args) {
  refuse_idle_options(command, args.mode);
  check_options(common_options(args, false), args.mode == "train" ? "trainer" : "generator");
  const Runtime runtime = open_runtime(args);
  const Model model = open_model(args, args.model);
  const Sizes sizes = sizes_of(Json::parse(text(tsr_model_info, model.get())));
  const auto bench = args.mode == "train"    ? bench_train
                     : args.mode == "decode" ? bench_decode
                                             : bench_serving;
  const Json result = bench(args, runtime, model, sizes);
  if (!is_first_process()) return;
  if (args.json) return print_json(result);
  print_result(result);
}

}  // namespace

void register_bench(CLI::App& app) {
  auto args = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand("bench", "time a training step, a text, or many clients");
  command
      ->footer(
          "Example:\n"
          "  tessera bench gpt2:L=12,C=768,H=12,V=50257,T=1024 --batch 4 --seq 128\n"
          "  tessera bench gpt2:L=12,C=768,H=12,V=50257,T=1024 --devices cuda --batch 32 --seq 1024 --precision "  // not run: GPU
          "bf16 --kernels\n"
          "  tessera bench model.tsr --mode decode --seq 128 --tokens 64\n"
          "  tessera bench model.tsr --mode serve --clients 16 --prompt 128 --new 128\n"
          "  tessera bench model.tsr --mode serve --adapters 16 --adapter-rank 8\n"
          "  tessera bench model.tsr --mode serve --rate 2.5 --requests 100 --shared 64 --sequences 32 --json\n"
          "decode also prints the launches per token, and the time outside of matmuls: other kernels, launches and "
          "the host\n"
          "between two tokens, from a few traced runs. If the device joins kernels in one launch, its time counts for "
          "the first.\n"
          "serve computes many requests at once: tokens per second by the clock, from the first request to the last "
          "token;\n"
          "time to the first token and between tokens; cached prompt tokens; and a limit: each step as fast as its "
          "weights and\n"
          "the keys and values of its sequences can be read. --adapters makes random adapters in memory, used in "
          "turn.");
  command->add_option("model", args->model, ".tsr or GGUF file, Hugging Face folder, or a description")
      ->required();
  command->add_option("--mode", args->mode, "train, decode or serve")
      ->check(CLI::IsMember({"train", "decode", "serve"}))
      ->capture_default_str();
  command->add_option("--batch", args->batch, "train: sequences in one step")->capture_default_str();
  command->add_option("--seq", args->seq, "train: tokens a sequence; decode: tokens of the prompt")
      ->capture_default_str();
  command->add_option("--precision", args->precision,
                      "f32, tf32 or bf16; train: also f16 and fp8 (default: f32)");
  command->add_option("--fused-loss", args->fused_loss,
                      "train: on, off or auto: fused output head and loss (default: auto)");
  command->add_option(
      "--weights", args->weights,
      "bf16; decode, serve: also f16 or a block type such as q8_0 (default: as the model has them)");
  command->add_option("--tokens", args->tokens, "decode: tokens to generate")->capture_default_str();
  command->add_option("--steps", args->steps, "timed rounds, after one that is not")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20))
      ->capture_default_str();
  command->add_option("--peak-tflops", args->peak_tflops,
                      "train: peak of one device, the denominator of mfu (default: its bf16 peak, where known)");
  command->add_flag("--kernels", args->kernels,
                    "time by kernel and its floor, from a few more runs, traced");
  add_serve_load(*command, args->load);
  command->add_option(
      "--copy-gbs", args->copy_gbs,
      "floors and limit: GB/s of a large copy on the device (default: as the backend states)");
  command->add_option("--product-tflops", args->product_tflops,
                      "floors: TFLOP/s of a large matmul (default: as the backend states)");
  add_placement(*command, *args);
  add_json(*command, *args);
  command->callback([args, command] { run_bench(*command, *args); });
}

}  // namespace cli
