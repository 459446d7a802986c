#include "train_arguments.h"

#include "method.h"
#include "progress.h"

namespace cli {

namespace {

void add_optimizer_arguments(CLI::App& command, TrainArguments& args) {
  command.add_option("--lr", args.lr, "peak learning rate (default 1e-4; from scratch 1e-3 and more)");
  command.add_option("--schedule", args.schedule, "constant (default), cosine, linear or wsd");
  command.add_option("--decay-fraction", args.decay_fraction,
                     "wsd: fraction of the steps that decay, at the end (default 0.1)");
  command.add_option("--decay-shape", args.decay_shape, "wsd: linear (default) or sqrt, 1 - sqrt(x)");
  command.add_option("--warmup", args.warmup, "steps of linear warmup (default 10; 0: none)");
  command.add_option("--lr-end", args.lr_end,
                     "rate at the end of the schedule as a fraction of lr (default 0)");
  command.add_option("--optimizer", args.optimizer,
                     "adamw (default), adamw8 (moments in 8 bits), adafactor, lion, muon or sgd");
  command.add_option(
      "--weight-decay", args.weight_decay,
      "weight decay of matrices, not of norms and biases (default: 0.01 for adamw and adamw8, 0.1 for muon, 0 for "
      "others)");
  command.add_option("--groups", args.groups,
                     "rate and decay by name, the first match counts: "
                     "'[{\"match\": \"block.0.*\", \"lr_factor\": 0.5, \"weight_decay\": 0.1}]'");
  command.add_option("--lora-plus-ratio", args.lora_plus_ratio, "factor on the rate of *.lora_b (default 1)");
  command.add_option("--momentum", args.momentum, "momentum of sgd (default 0.9) and muon (default 0.95)");
  command.add_option("--muon-scale", args.muon_scale,
                     "scale of muon's updates: match_rms_adamw (default), so that one rate suits all parameters, or "
                     "original");
}

}  // namespace

void add_train_arguments(CLI::App& command, TrainArguments& args) {
  command.add_option("model", args.model, ".tsr or GGUF file, or Hugging Face folder")->required();
  add_data(command, args.data.path);
  add_data_options(command, args.data);
  add_loss_options(command, args.losses);
  add_run_options(command, args.run);
  command.add_option("--batch", args.batch,
                     "sequences, or pairs of a preference loss, in one step, over all devices (default 8)");
  command.add_option("--accumulate", args.accumulate,
                     "batches per optimizer step: gradient accumulation (default 1)");
  command.add_option("--seq", args.data.seq, "tokens a sequence (default 128)");
  add_optimizer_arguments(command, args);
  command.add_option("--clip-norm", args.clip_norm,
                     "maximum global gradient norm (default 1.0); 0: none");
  command.add_option(
      "--loss-scaling", args.loss_scaling,
      "initial loss scale, a power of two, then adapted; 0: none (default: 65536 with f16)");
  command.add_option("--precision", args.precision,
                     "f32, tf32, bf16, f16 or fp8, with f32 parameters (default: f32)");
  command.add_option(
      "--weights", args.weights,
      "bf16: trained parameters in bf16 alone, without f32 copies, with stochastic rounding (default: model)");
  command.add_option(
      "--fused-loss", args.fused_loss,
      "on, off or auto: fused output head and loss, without stored logits (default: auto)");
  command.add_option("--dropout", args.dropout, "dropout probability, everywhere in the model");
  command.add_option("--trained", args.trained,
                     "trained parameters; all others are frozen: block.1*,*norm* (default: all that can)");
  command.add_option("--frozen", args.frozen, "frozen parameters: block.0.*,token_embedding");
  add_method(command, args.method);
  add_adapter_options(command, args.adapters);
  command
      .add_option("--eval-fraction", args.data.eval_fraction,
                  "held-out fraction: of the text its end, or of the rows")
      ->capture_default_str();
  command.add_option("--eval-batches", args.eval_batches, "maximum batches of an evaluation (default 0: all)");
  command.add_option("--seed", args.seed, "seed of data order and dropout")->capture_default_str();
  command
      .add_option(
          "--init", args.init,
          "start from the parameters of this checkpoint; its optimizer, batch and data may differ")
      ->excludes("--resume");
  command.add_option("--trace", args.trace, "file for a trace of the run, for Perfetto or chrome://tracing");
  command.add_option("--offload-folder", args.offload_folder,
                     "folder for tensors offloaded to a file (default $TMPDIR)");
  command.add_option("--watchdog", args.watchdog,
                     "seconds without progress after which a step fails (default 60; 0: never)");
  add_adapter_file(command, args);
  add_placement(command, args);
  add_json(command, args);
  add_quiet(command, args);
}

Options trainer_options(const TrainArguments& args) {
  Options options = make<Options>(tsr_options_new);
  set_placement(options, args);
  set(options, "batch", args.batch);
  set(options, "accumulate", args.accumulate);
  set(options, "seq", args.data.seq);
  set(options, "steps", args.run.steps);
  set(options, "lr", args.lr);
  set(options, "lr_end", args.lr_end);
  set(options, "schedule", args.schedule);
  set(options, "decay_fraction", args.decay_fraction);
  set(options, "decay_shape", args.decay_shape);
  set(options, "warmup", args.warmup);
  set(options, "optimizer", args.optimizer);
  set(options, "muon_scale", args.muon_scale);
  set(options, "groups", args.groups);
  set(options, "lora_plus_ratio", args.lora_plus_ratio);
  set(options, "clip_norm", args.clip_norm);
  set(options, "seed", args.seed);
  set(options, "weight_decay", args.weight_decay);
  set(options, "momentum", args.momentum);
  set(options, "dropout", args.dropout);
  if (!args.precision.empty()) set(options, "precision", args.precision);
  if (!args.weights.empty()) set(options, "weights", args.weights);
  if (!args.fused_loss.empty()) set(options, "fused_loss", args.fused_loss);
  set(options, "loss_scaling", args.loss_scaling);
  if (!args.trained.empty()) set(options, "trained", args.trained);
  if (!args.frozen.empty()) set(options, "frozen", args.frozen);
  set(options, "eval_batches", args.eval_batches);
  if (!args.trace.empty()) set(options, "trace", int64_t{1});
  if (!args.offload_folder.empty()) set(options, "offload_folder", args.offload_folder);
  set(options, "watchdog", args.watchdog);
  set_loss(options, args.losses);
  return options;
}

}  // namespace cli
