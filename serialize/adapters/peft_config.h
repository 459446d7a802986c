// PeftConfig: adapter_config.json of PEFT's LoRA, and its selection of a model's modules.
// https://github.com/huggingface/peft, src/peft/tuners/lora/config.py and tuners/tuners_utils.py.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "graph/base/result.h"
#include "text/json.h"

namespace tessera {

struct PeftConfig {
  // Names: names that match modules by their end after a dot, or one expression for whole names.
  struct Names {
    std::vector<std::string> list;
    std::optional<std::string> expression;
  };
  int64_t rank = 8;
  double alpha = 8;
  bool scales_by_root = false;   // use_rslora: alpha / sqrt(rank) instead of alpha / rank
  bool has_magnitudes = false;   // use_dora
  bool has_bias = false;         // lora_bias
  std::string bias = "none";     // biases that also train: none, all or lora_only
  double dropout = 0;            // lora_dropout, for training only
  bool has_start = false;        // init_lora_weights "pissa": the initial B A was subtracted from the base
  bool all_linear = false;       // targets are all matrices except head and tables
  std::optional<Names> targets;  // nullopt: the family's
  Names excluded;
  std::vector<int64_t> layers;
  std::vector<std::string> layers_patterns;
  std::vector<std::pair<std::string, int64_t>> rank_pattern;
  std::vector<std::pair<std::string, double>> alpha_pattern;
  std::vector<std::string> modules_to_save;
  // Tokens whose table rows are in the file (trainable_token_indices; token_indices
  // of a TRAINABLE_TOKENS adapter), by module name; "" is the table, and a tied head.
  std::vector<std::pair<std::string, std::vector<int64_t>>> token_rows;
};

// Reads LoRA configurations, and TRAINABLE_TOKENS, which adapts no module. kUnsupported
// names another adapter kind, or an initialization with effects outside the file.
Result<PeftConfig> read_peft_config(const Json& json);

// ModuleExpression: a regular expression for module names, with a bounded number of steps.
class ModuleExpression {
 public:
  // `place`: the option or key with the expression, for messages.
  static Result<ModuleExpression> create(std::string place, std::string_view expression);
  Result<bool> matches(std::string_view module) const;  // the whole name

 private:
  struct Impl;
  std::shared_ptr<const Impl> impl_;
};

// Whether the module has that name, or ends with it after a dot.
bool ends_with_name(std::string_view module, std::string_view name);
// Whether the module, or one that contains it, has a name that ends so.
bool is_saved_module(std::string_view module, std::string_view saved);

// PeftSelection: the modules that a configuration adapts, with rank and factor. One thread.
class PeftSelection {
 public:
  // `family`: determines omitted targets.
  static Result<PeftSelection> create(const PeftConfig& config, std::string_view family);

  // Whether a module has an adapter. `is_linear`: a matrix other than head and tables.
  Result<bool> is_adapted(std::string_view module, bool is_linear) const;
  bool is_saved(std::string_view module) const;  // listed in modules_to_save
  Result<int64_t> rank(std::string_view module) const;
  Result<double> factor(std::string_view module) const;

 private:
  template <class T>
  using Pattern = std::vector<std::pair<ModuleExpression, T>>;
  bool is_in_layers(std::string_view module) const;

  PeftConfig config_;
  std::vector<std::string> targets_;
  std::optional<ModuleExpression> target_expression_, excluded_expression_;
  std::vector<ModuleExpression> saved_;
  Pattern<int64_t> ranks_;
  Pattern<double> alphas_;
};

}  // namespace tessera
