#include "inference.h"

namespace cli {

void add_inference(CLI::App& command, Inference& inference) {
  command.add_option(
      "--precision", inference.precision,
      "f32 or bf16: activations and caches; tf32: f32, except in matrix products (default: f32)");
  command.add_option(
      "--activations", inference.activations,
      "what multiplies weights: f32; q8: rows rounded to 8 bits, for weights of block types; bf16: numbers "
      "rounded "
      "to bf16, for weights in bf16; auto: both, where the devices are faster so (default: auto)");
  command.add_option(
      "--repack", inference.repack,
      "auto: on CPU devices weights of block types are copied into the order in which kernels read "
      "fastest; off: they are read in the model's file (default: auto)");
  command.add_option(
      "--weights", inference.weights,
      "bf16, f16 or a block type such as q8_0 or q4_k: how wider matrices are kept (default: as they "
      "are)");
}

void set_inference(const Options& options, const Inference& inference) {
  set(options, "precision", inference.precision);
  set(options, "activations", inference.activations);
  set(options, "repack", inference.repack);
  set(options, "weights", inference.weights);
}

}  // namespace cli
