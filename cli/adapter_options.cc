#include "adapter_options.h"

#include <algorithm>
#include <array>
#include <utility>

#include "command.h"

namespace cli {

void add_adapter_options(CLI::App& command, Adapters& adapters) {
  command
      .add_option("--lora", adapters.rank,
                  "train low-rank adapters (LoRA) of this rank on the weights of all blocks; the weights stay frozen")
      ->check(CLI::Range(1, 1 << 20));
  command.add_option("--lora-alpha", adapters.alpha,
                     "scale of the adapters' output is alpha / rank (default: the rank, so 1)");
  command.add_option("--lora-on", adapters.on,
                     "weights with adapters, by our names or those of Hugging Face's modules: q_proj,v_proj or "
                     "block.*.q.weight or all-linear or re:EXPRESSION");
  command.add_option("--lora-exclude", adapters.exclude, "weights without adapters, named likewise");
  command.add_option("--lora-layers", adapters.layers, "blocks with adapters: 0,2,5-7");
  command.add_option("--lora-ranks", adapters.ranks,
                     "ranks of single weights; the first match counts: q_proj=4,block.0.*=2");
  command.add_option("--lora-alphas", adapters.alphas, "alphas of single weights, likewise");
  command.add_flag("--rslora", adapters.rslora, "scale is alpha / sqrt(rank) (rsLoRA)");
  command.add_flag("--dora", adapters.dora, "train the magnitude of each output's weights, too (DoRA)");
  command.add_option("--lora-init", adapters.init,
                     "zero (default), or pissa: adapters start as the principal components of their weights");
  command.add_option("--lora-dropout", adapters.dropout,
                     "dropout probability on the adapters' input (default 0)");
  command.add_option("--lora-also", adapters.also,
                     "further parameters, trained in full: *norm*,token_embedding or embed_tokens,lm_head");
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

Model add_adapters(Model model, const Adapters& adapters) {
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

}  // namespace cli
