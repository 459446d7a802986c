// WeightSelector: parameters by their names here or in Hugging Face's files, as options give them:
//   block.*.q.weight            names here, '*' for any characters
//   q_proj, self_attn.q_proj    modules of Hugging Face's class, by their whole name or its end after a dot
//   all-linear                  matrices of modules: neither the head, tables, routers nor experts
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
    // kInvalidArgument for an invalid expression; `option` is for messages.
    static Result<Pattern> create(std::string_view text, std::string_view option);

   private:
    friend class WeightSelector;
    std::string text_;
    std::optional<ModuleExpression> expression_;
  };

  // `graph`: the model's, with weights in their computed types. A model of no known family has no modules.
  WeightSelector(const Model& model, const Graph& graph);

  Result<bool> matches(const Pattern& pattern, TensorId parameter) const;

  // Parameters among `of` that one of the comma-separated patterns names; after "re:" commas belong to the expression.
  // kNotFound, beginning with `option`, where a pattern names none.
  Result<std::vector<TensorId>> select(std::string_view patterns, std::span<const TensorId> of,
                                       std::string_view option) const;

 private:
  const Graph& graph_;
  std::vector<std::string> modules_;  // by tensor; empty: none
  std::vector<bool> is_linear_;       // by tensor
};

}  // namespace tessera
