#include <chrono>
#include <iostream>
#include <random>

#include "command.h"

namespace cli {

namespace {
struct Arguments : Common {
  std::string model, mode = "train", precision, weights, fused_loss;
  int64_t batch = 4, seq = 128, steps = 7, tokens = 64;
};

int64_t vocabulary_of(const Json& info) {
  for (const Json& output : info["outputs"])
    if (output["name"] == "logits") return output["shape"].back().get<int64_t>();
  throw Error(TSR_INVALID_ARGUMENT, "bench needs a language model: an output \"logits\" [B, T, V]");
}

// A training step on random tokens: batch, seq as given, AdamW without clipping. The first step is not
// counted.
Json bench_train(const Arguments& args, const Runtime& runtime, const Model& model, int64_t vocabulary) {
  std::mt19937 random(1);
  std::vector<int32_t> ids(static_cast<size_t>(args.batch * args.seq * 4 + 1));
  for (int32_t& id : ids) id = static_cast<int32_t>(random() % static_cast<uint64_t>(vocabulary));
  Options data_options = make<Options>(tsr_options_new);
  set(data_options, "seq", args.seq);
  const Dataset dataset = make<Dataset>(tsr_dataset_new_tokens, static_cast<const int32_t*>(ids.data()),
                                        ids.size(), static_cast<const tsr_options*>(data_options.get()));
  Options options = make<Options>(tsr_options_new);
  set_placement(options, args);
  set(options, "batch", args.batch);
  set(options, "seq", args.seq);
  set(options, "clip_norm", 0.0);
  set(options, "measure_memory", int64_t{0});
  if (!args.precision.empty()) set(options, "precision", args.precision);
  if (!args.weights.empty()) set(options, "weights", args.weights);
  if (!args.fused_loss.empty()) set(options, "fused_loss", args.fused_loss);
  const Trainer trainer = make<Trainer>(tsr_trainer_new, runtime.get(), model.get(),
                                        static_cast<const tsr_dataset*>(dataset.get()),
                                        static_cast<const tsr_options*>(options.get()));
  std::vector<double> seconds;
  for (int64_t i = 0; i <= args.steps; ++i) {
    tsr_step step{};
    step.struct_size = sizeof step;
    check(tsr_trainer_step(trainer.get(), &step));
    if (i > 0) seconds.push_back(step.seconds);
  }
  const Json report = Json::parse(text(tsr_trainer_report, trainer.get()));
  return {{"mode", "train"},
          {"step_seconds", median(seconds)},
          {"tokens_per_second", static_cast<double>(args.batch * args.seq) / median(seconds)},
          {"seconds", seconds},
          {"plan", report["plan"]["strategy"]},
          {"devices", report["devices"]}};
}

// Greedy decoding of `tokens` tokens after a prompt of `seq`, batch 1.
Json bench_decode(const Arguments& args, const Runtime& runtime, const Model& model, int64_t vocabulary) {
  Options options = make<Options>(tsr_options_new);
  set_placement(options, args);
  set(options, "max_tokens", args.tokens);
  if (!args.precision.empty()) set(options, "precision", args.precision);
  if (!args.weights.empty()) set(options, "weights", args.weights);
  set(options, "context", args.seq + args.tokens + 1);
  const Generator generator = make<Generator>(tsr_generator_new, runtime.get(), model.get(), options.get());
  std::vector<int32_t> prompt(static_cast<size_t>(args.seq));
  for (size_t i = 0; i < prompt.size(); ++i)
    prompt[i] = static_cast<int32_t>((i * 7 + 3) % static_cast<size_t>(vocabulary));
  std::vector<double> prefill, decode;
  for (int64_t i = 0; i <= args.steps; ++i) {
    check(tsr_generator_start_tokens(generator.get(), prompt.data(), prompt.size()));
    tsr_piece piece{};
    piece.struct_size = sizeof piece;
    do check(tsr_generator_next(generator.get(), -1, &piece));
    while (piece.kind != TSR_END);
    const Json report = Json::parse(text(tsr_generator_report, generator.get()));
    if (i == 0) continue;
    prefill.push_back(report["prompt_tokens"].get<double>() / report["prefill_seconds"].get<double>());
    decode.push_back(report["tokens"].get<double>() / report["decode_seconds"].get<double>());
  }
  return {{"mode", "decode"},
          {"prefill_tokens_per_second", median(prefill)},
          {"decode_tokens_per_second", median(decode)}};
}
}  // namespace

void register_bench(CLI::App& app) {
  auto args = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand("bench", "time a training step, or prefill and decoding");
  command->footer(
      "Example:\n  tessera bench gpt2:L=12,C=768,H=12,V=50257,T=1024 --batch 4 --seq 128\n"
      "  tessera bench model.tsr --mode decode --seq 128 --tokens 64");
  command->add_option("model", args->model, ".tsr or GGUF file, or a description")->required();
  command->add_option("--mode", args->mode, "train or decode")
      ->check(CLI::IsMember({"train", "decode"}))
      ->capture_default_str();
  command->add_option("--batch", args->batch, "train: sequences in one step")->capture_default_str();
  command->add_option("--seq", args->seq, "train: tokens a sequence; decode: tokens of the prompt")
      ->capture_default_str();
  command->add_option("--precision", args->precision, "f32 or bf16; train: also f16 and fp8 (default: f32)");
  command->add_option("--fused-loss", args->fused_loss,
                      "train: on, off or auto: output head and loss together (default: auto)");
  command->add_option("--weights", args->weights,
                      "bf16; decode: also int8 or int4 (default: as the model has them)");
  command->add_option("--tokens", args->tokens, "decode: tokens to generate")->capture_default_str();
  command->add_option("--steps", args->steps, "counted rounds, after one that is not")->capture_default_str();
  add_placement(*command, *args);
  add_json(*command, *args);
  command->callback([args] {
    const Runtime runtime = open_runtime(*args);
    const Model model = open_model(args->model);
    const int64_t vocabulary = vocabulary_of(Json::parse(text(tsr_model_info, model.get())));
    const Json result = args->mode == "train" ? bench_train(*args, runtime, model, vocabulary)
                                              : bench_decode(*args, runtime, model, vocabulary);
    if (args->json) return print_json(result);
    for (const auto& [key, value] : result.items()) std::cout << key << "  " << value.dump() << '\n';
  });
}

}  // namespace cli
