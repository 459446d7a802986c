// Adafactor (Shazeer and Stern, ICML 2018) with a given rate: neither relative steps nor scaling by the parameter. State
// "<parameter>.rows" [..., M] and "<parameter>.cols" [..., N] of parameters [..., M, N], "<parameter>.v" of others.
#include "graph/base/text.h"
#include "graph/optim/optimizers.h"

namespace tessera {

namespace {

constexpr OptimizerSetting kAdafactorSettings[] = {{"decay_rate", 0.8},
                                                   {"eps", 1e-30},
                                                   {"clip_threshold", 1.0, 1e-30, 1e30},
                                                   {"weight_decay", 0.0, 0, kMostDecay}};

class Adafactor {
 public:
  Adafactor(const OptimizerContext& context, const std::map<std::string, double>& hyper)
      : context_(context), graph_(context.graph), hyper_(hyper) {}

  Status emit() {
    const Shape shape = graph_.type(context_.parameter).shape;
    std::vector<TensorId> moments;
    if (shape.rank() < 2) {
      TSR_ASSIGN_OR_RETURN(const TensorId squares, graph_.add("square", {context_.gradient}));
      TSR_ASSIGN_OR_RETURN(const TensorId v, moment("v", shape, squares, 1));
      moments = {v};
    } else {
      const int last = shape.rank() - 1;
      Shape rows, cols;
      for (int dim = 0; dim <= last; ++dim) {
        if (dim != last) rows.push_back(shape[dim]);
        if (dim != last - 1) cols.push_back(shape[dim]);
      }
      TSR_ASSIGN_OR_RETURN(const std::vector<TensorId> sums,
                           graph_.add_node("square_sums", std::vector{context_.gradient}));
      TSR_ASSIGN_OR_RETURN(const TensorId r, moment("rows", rows, sums[0], shape[last]));
      TSR_ASSIGN_OR_RETURN(const TensorId c, moment("cols", cols, sums[1], shape[last - 1]));
      TSR_ASSIGN_OR_RETURN(const TensorId t,
                           graph_.add("reduce_sum", {r}, {{"axes", std::vector<int64_t>{last - 1}}}));
      moments = {r, c, t};
    }
    return update(moments, shape);
  }

 private:
  // Adds the new value of state "<parameter>.<slot>".
  Result<TensorId> moment(std::string_view slot, const Shape& shape, TensorId sums, int64_t count) {
    TSR_ASSIGN_OR_RETURN(const TensorId state, add_optimizer_state(context_, slot, shape));
    TSR_ASSIGN_OR_RETURN(
        const TensorId made,
        graph_.add("adafactor_moment", {state, sums, context_.step, context_.gradient_scale},
                   {{"count", count}, {"decay_rate", hyper_.at("decay_rate")}, {"eps", hyper_.at("eps")}}));
    TSR_RETURN_IF_ERROR(add_named_update(graph_, state, made));
    return made;
  }

  Status update(const std::vector<TensorId>& moments, const Shape& shape) {
    const bool factored = moments.size() > 1;
    const std::vector<Attr> form = {{"factored", int64_t{factored}},
                                    {"rows", factored ? shape[shape.rank() - 2] : int64_t{1}}};
    std::vector<TensorId> inputs = {context_.gradient};
    inputs.insert(inputs.end(), moments.begin(), moments.end());
    inputs.push_back(context_.gradient_scale);
    TSR_ASSIGN_OR_RETURN(const std::vector<TensorId> squares,
                         graph_.add_node("adafactor_squares", inputs, form));
    inputs.insert(inputs.begin(), context_.parameter);
    inputs.insert(inputs.end() - 1, {squares[0], context_.lr});
    std::vector<Attr> attrs = form;
    attrs.push_back({"count", shape.elements()});
    for (const char* name : {"clip_threshold", "weight_decay", "lr_scale"})
      if (const auto at = hyper_.find(name); at != hyper_.end()) attrs.push_back({name, at->second});
    TSR_ASSIGN_OR_RETURN(const std::vector<TensorId> made,
                         graph_.add_node("adafactor_update", inputs, std::move(attrs)));
    return add_named_update(graph_, context_.parameter, made[0]);
  }

  const OptimizerContext& context_;
  Graph& graph_;
  const std::map<std::string, double>& hyper_;
};

Status emit_adafactor(const OptimizerContext& context, const std::map<std::string, double>& hyper) {
  if (context.gradient_scale == kNoTensor)
    return Status(StatusCode::kInternal, "adafactor wants a factor on gradients");
  return Adafactor(context, hyper).emit();
}

}  // namespace

extern const OptimizerDef kAdafactor = {
    .name = "adafactor", .settings = kAdafactorSettings, .emit = emit_adafactor};

}  // namespace tessera
