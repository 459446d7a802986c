#include "inference.h"

namespace cli {

void add_inference(CLI::App& command, Inference& inference) {
  command.add_option(
      "--precision", inference.precision,
      "f32 or bf16: activations and caches; tf32: f32, except in matmuls (default: f32)");
  command.add_option(
      "--activations", inference.activations,
      "type of the activations that multiply weights: f32; q8: rows rounded to 8 bits, for weights of block types "
      "(not nf4); bf16: rounded to bf16, for weights in bf16; auto: both, where faster on the devices (default: auto)");
  command.add_option(
      "--repack", inference.repack,
      "auto: on CPUs, copy weights of block types into the order of the kernels; off: read them from the model's file "
      "(default: auto)");
  command.add_option(
      "--weights", inference.weights,
      "bf16, f16 or a block type such as q8_0 or q4_k: storage type of wider matrices (default: as they are)");
}

void set_inference(const Options& options, const Inference& inference) {
  set(options, "precision", inference.precision);
  set(options, "activations", inference.activations);
  set(options, "repack", inference.repack);
  set(options, "weights", inference.weights);
}

void add_sampling(CLI::App& command, Sampling& sampling) {
  command
      .add_option("-n,--tokens,--max-tokens", sampling.count,
                  "tokens to generate; 0: until the context is full")
      ->capture_default_str();
  command.add_option("--temp,--temperature", sampling.temperature,
                     "0: always the likeliest token (default 0.8)");
  command.add_option("--top-k", sampling.top_k, "sample from this many of the likeliest tokens (default 0: all)");
  command.add_option("--top-p", sampling.top_p, "sample from the likeliest tokens whose probabilities sum to this "
                                                "(default 1)");
  command.add_option("--stop", sampling.stop, "a text that ends the generation; may be repeated");
  command.add_option("--context", sampling.context,
                     "tokens of the cache, prompt included (default: the model's context, of `generate` at most 2048, "
                     "of `chat` as far as memory allows)");
  command.add_option("--seed", sampling.seed,
                     "seed of the sampling, to repeat a text (default: another each time; --stats names it)");
}

void set_sampling(const Options& options, const Sampling& sampling) {
  set(options, "max_tokens", sampling.count);
  set(options, "temperature", sampling.temperature);
  set(options, "top_k", sampling.top_k);
  set(options, "top_p", sampling.top_p);
  set(options, "seed", sampling.seed);
  set(options, "context", sampling.context);
  if (!sampling.stop.empty()) set(options, "stop", Json(sampling.stop).dump());
}

}  // namespace cli
