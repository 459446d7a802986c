#include <iostream>
#include <optional>

#include "command.h"
#include "data_options.h"
#include "interruptible.h"
#include "preference_options.h"
#include "training_text.h"

namespace cli {

namespace {
struct Arguments : Common {
  std::string model;
  DataOptions data;
  std::optional<std::string> weights, precision, activations;
  std::optional<int64_t> batch;
  LossOptions losses;
};
}  // namespace

void register_eval(CLI::App& app) {
  auto args = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand(
      "eval", "loss, perplexity and token accuracy of a model on a text or on rows of training data");
  command->footer(
      "Example:\n  tessera eval model.tsr --data text.txt --seq 128\n"
      "  tessera eval model.tsr --data text.txt --weights q8_0   # what `generate --weights q8_0` computes "
      "with\n"
      "  tessera eval tuned.tsr --data pairs.jsonl --loss dpo --reference model.tsr");
  command->add_option("model", args->model, ".tsr or GGUF file, or Hugging Face folder")->required();
  add_data(*command, args->data.path);
  add_data_options(*command, args->data);
  add_loss_options(*command, args->losses);
  command->add_option("--batch", args->batch, "sequences at once, over all devices (default 8)");
  command->add_option("--seq", args->data.seq, "tokens a sequence (default 128)");
  command->add_option("--precision", args->precision,
                      "precision of the computation: f32, tf32, bf16, f16 or fp8 (default f32)");
  command->add_option("--activations", args->activations,
                      "type of the activations that multiply weights: f32; q8: rows rounded to 8 bits, for weights of "
                      "block types (not nf4); bf16: rounded to bf16, for weights in bf16; auto: as `generate` "
                      "(default: f32)");
  command->add_option(
      "--weights", args->weights,
      "bf16, f16 or a block type such as q8_0 or q4_k: storage type of wider matrices (default model: as they are)");
  add_adapter_file(*command, *args);
  add_placement(*command, *args);
  add_json(*command, *args);
  command->callback([args] {
    args->data.eval_fraction = 1;
    Options options = make<Options>(tsr_options_new);
    set_placement(options, *args);
    set(options, "batch", args->batch);
    set(options, "precision", args->precision);
    set(options, "weights", args->weights);
    set(options, "activations", args->activations);
    set(options, "evaluate_only", int64_t{1});
    set_loss(options, args->losses);
    check_options(options, "trainer");
    check_data_options(*args, args->data);
    const Runtime runtime = open_runtime(*args);
    const Model model = open_model(*args, args->model);
    const Dataset dataset = open_data(*args, args->data, model, args->model);
    const Trainer trainer = make_interruptible<Trainer>(tsr_trainer_new, runtime, model.get(),
                                                        static_cast<const tsr_dataset*>(dataset.get()),
                                                        static_cast<const tsr_options*>(options.get()));
    Json found = Json::parse(text(tsr_trainer_evaluate_all, trainer.get()));
    if (!args->json) {
      std::cout << "loss " << evaluation_text(found) << '\n';
      return;
    }
    Json result = {{"eval_loss", found["loss"]}};
    found.erase("loss");
    result.update(found);
    print_json(result);
  });
}

}  // namespace cli
