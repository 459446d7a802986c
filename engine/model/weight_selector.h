// WeightSelector: selects parameters by names here or in Hugging Face's files, in options:
//   block.*.q.weight            names here; '*' matches any characters
//   q_proj, self_attn.q_proj    Hugging Face modules, by whole name or its end after a dot
//   all-linear                  matrices of modules except head, tables, routers and experts
//   re:.*\.[01]\.mlp\.up_proj   modules whose whole name matches the expression
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "graph/graph.h"
#include "serialize/adapters/peft_config.h"
#include "serialize/model.h"

namespace tessera {

class WeightSelector {
 public:
  class Pattern {
   public:
    // kInvalidArgument for an invalid expression; `option` names it in messages.
    static Result<Pattern> create(std::string_view text, std::string_view option);

   private:
    friend class WeightSelector;
    std::string text_;
    std::optional<ModuleExpression> expression_;
  };

  // `graph`: the model's, with computed weight types. A model of unknown family has no modules.
  WeightSelector(const Model& model, const Graph& graph);

  Result<bool> matches(const Pattern& pattern, TensorId parameter) const;

  // Parameters among `of` matched by a comma-separated pattern; after "re:" commas belong
  // to the expression. kNotFound, beginning with `option`, if a pattern matches none.
  Result<std::vector<TensorId>> select(std::string_view patterns, std::span<const TensorId> of,
                                       std::string_view option) const;

 private:
  const Graph& graph_;
  std::vector<std::string> modules_;  // by tensor; empty: none
  std::vector<bool> is_linear_;       // by tensor
};

}  // namespace tessera
