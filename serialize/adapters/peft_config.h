// PeftConfig: adapter_config.json of PEFT's LoRA, and which of a model's modules it means.
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
  // Names, of which each means every module that ends with it after a dot; or one expression for whole names.
  struct Names {
    std::vector<std::string> list;
    std::optional<std::string> expression;
  };
  int64_t rank = 8;
  double alpha = 8;
  bool scales_by_root = false;   // use_rslora: alpha / sqrt(rank) in place of alpha / rank
  bool has_magnitudes = false;   // use_dora
  bool has_bias = false;         // lora_bias
  std::string bias = "none";     // that trains as well: none, all or lora_only
  double dropout = 0;            // lora_dropout, used in training only
  bool has_start = false;        // init_lora_weights "pissa": the base lost the initial B A
  bool all_linear = false;       // targets are all matrices except the head and tables
  std::optional<Names> targets;  // none: the family's
  Names excluded;
  std::vector<int64_t> layers;
  std::vector<std::string> layers_patterns;
  std::vector<std::pair<std::string, int64_t>> rank_pattern;
  std::vector<std::pair<std::string, double>> alpha_pattern;
  std::vector<std::string> modules_to_save;
  // Tokens whose rows of a table are in the file (trainable_token_indices; token_indices of a TRAINABLE_TOKENS
  // adapter), by the module's name; "" is the table, and the head where that is the same.
  std::vector<std::pair<std::string, std::vector<int64_t>>> token_rows;
};

// Of LoRA, and of TRAINABLE_TOKENS, which adapts no module. kUnsupported names another kind of adapter, or an
// initialization, that changes more than the file says.
Result<PeftConfig> read_peft_config(const Json& json);

// ModuleExpression: a regular expression for names of modules, run within bounds of steps.
class ModuleExpression {
 public:
  // `place`: where the expression was found, for messages.
  static Result<ModuleExpression> create(std::string place, std::string_view expression);
  Result<bool> matches(std::string_view module) const;  // all of its name

 private:
  struct Impl;
  std::shared_ptr<const Impl> impl_;
};

// Whether a module has that name, or ends with it after a dot.
bool ends_with_name(std::string_view module, std::string_view name);
// Whether a module, or one that holds it, has a name that ends so.
bool is_saved_module(std::string_view module, std::string_view saved);

// Which modules a configuration adapts, and with what rank and factor. One thread.
class PeftSelection {
 public:
  // `family`: for targets that the configuration leaves out.
  static Result<PeftSelection> create(const PeftConfig& config, std::string_view family);

  // Whether a module has an adapter. `is_linear`: a matrix that is neither the head nor a table.
  Result<bool> is_adapted(std::string_view module, bool is_linear) const;
  bool is_saved(std::string_view module) const;  // by modules_to_save
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
