#include "serving.h"

namespace cli {

void add_serving(CLI::App& command, Serving& serving, const std::string& where) {
  command.add_option("--sequences", serving.sequences,
                     where + "sequences computed at once; further ones wait (default 16)");
  command.add_option("--cache-tokens", serving.cache_tokens,
                     where +
                         "capacity of the cache in tokens, for all sequences (default: --sequences times --context)");
  command.add_option("--window-cache-tokens", serving.window_cache_tokens,
                     where +
                         "capacity of the separate cache of layers with a window, in tokens, for all sequences "
                         "(default: 2 * --sequences * (window + 64) + --step-tokens, or that of --cache-tokens if "
                         "less)");
  command.add_option("--cache-type", serving.cache_type,
                     where +
                         "element type of keys and values: f16, bf16, q8_0 (8 bits, heads in blocks of 32), or model: "
                         "as computed (default: model)");
  command.add_option("--step-tokens", serving.step_tokens,
                     where + "maximum tokens of a step; longer prompts take several (default 256)");
  command.add_flag("--no-prefix-cache", serving.no_prefix_cache,
                   where + "compute prefixes that prompts share once for each");
  command.add_option("--speculation", serving.speculation,
                     where +
                         "speculative decoding, which changes no text: off, ngram (drafts from repetitions in the "
                         "text), mtp (drafts of the model file's own multi-token-prediction block) or draft "
                         "(default: off; draft with --draft-model)");
  command.add_option("--draft-model", serving.draft_model,
                     where + "a smaller draft model of the same vocabulary");
  command.add_option("--draft-tokens", serving.draft_tokens,
                     where + "maximum draft tokens of a sequence in a step (default: 4 by a model or mtp, 7 by ngram)");
  command
      .add_option("--adapters", serving.adapters,
                  where + "low-rank adapters that a step can mix; requests of further ones wait")
      ->check(CLI::Range(1, 4096));
  command
      .add_option("--adapter-rank", serving.adapter_rank,
                  where + "maximum rank of these adapters; each takes the memory of this rank")
      ->check(CLI::Range(1, 4096));
  command.add_option(
      "--adapter-type", serving.adapter_type,
      where + "element type that adapters are rounded to: f32, bf16 or f16 (default: f32)");
}

std::string given_serving(const CLI::App& command) {
  for (const char* name : {"--sequences", "--cache-tokens", "--window-cache-tokens", "--cache-type",
                           "--step-tokens", "--no-prefix-cache", "--speculation", "--draft-model",
                           "--draft-tokens", "--adapters", "--adapter-rank", "--adapter-type"})
    if (command.count(name) > 0) return name;
  return "";
}

void set_serving(const Options& options, const Serving& serving) {
  set(options, "sequences", serving.sequences);
  set(options, "cache_tokens", serving.cache_tokens);
  set(options, "window_cache_tokens", serving.window_cache_tokens);
  set(options, "cache_type", serving.cache_type);
  set(options, "step_tokens", serving.step_tokens);
  if (serving.draft_model || serving.speculation)
    set(options, "speculation", serving.speculation.value_or("draft"));
  set(options, "draft_model", serving.draft_model);
  set(options, "draft_tokens", serving.draft_tokens);
  set(options, "adapters", serving.adapters);
  set(options, "adapter_rank", serving.adapter_rank);
  set(options, "adapter_type", serving.adapter_type);
  if (serving.no_prefix_cache) set(options, "prefix_cache", int64_t{0});
}

}  // namespace cli
