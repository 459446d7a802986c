#include "graph/transform/serving.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "graph/base/text.h"
#include "graph/ops/attention_support.h"
#include "graph/serving_builder.h"
#include "graph/transform/draft_block.h"
#include "graph/transform/embedding.h"
#include "graph/transform/graph_copy.h"
#include "graph/transform/language_model.h"
#include "graph/transform/latent_attention.h"
#include "graph/transform/prune.h"
#include "graph/transform/row_adapters.h"
#include "graph/transform/wanted_rows.h"

namespace tessera {

namespace {

constexpr std::string_view kWindowTable = "window_page_table";

bool sees_context(const Node& node) { return node.op->context.keys >= 0; }

// The window of an attention; 0: it sees the whole context.
int64_t window_within(const Node& attention, int64_t context) {
  const int64_t window = attr_i64_or(attention.attrs, "window", 0);
  return window < context ? window : 0;
}

Status unsuitable(std::string message) { return Status(StatusCode::kInvalidArgument, std::move(message)); }

}  // namespace

class ServingGraph {
 public:
  ServingGraph(const Graph& forward, const ServingOptions& options)
      : options_(options),
        forward_(forward),
        copy_(forward),
        adapters_(forward, {options.adapter_slots, options.adapter_rank, options.adapter_type, options.adapter_head,
                            options.adapter_tables}),
        full_{options.pages} {}

  Result<Graph> run() {
    TSR_RETURN_IF_ERROR(check_options());
    TSR_RETURN_IF_ERROR(find_operands());
    uses_ = operand_uses(forward_);
    if (options_.hidden) {
      hidden_ = *forward_.find_output("hidden");
      ++uses_[index(hidden_)];  // of every token: only its readers are computed for requested rows alone
    }
    requested_.emplace(forward_, tokens_, hidden_);
    TSR_RETURN_IF_ERROR(add_inputs());
    for (size_t i = 0; i < forward_.tensors().size(); ++i) {
      const TensorId id{static_cast<uint32_t>(i)};
      const Tensor& tensor = forward_.tensor(id);
      if (tensor.producer != kNoNode) {
        if (tensor.output_index == 0) TSR_RETURN_IF_ERROR(add_node(tensor.producer));
      } else if (copy_.mapped(id) == kNoTensor && (uses_[i] > 0 || tensor.kind == TensorKind::kParameter)) {
        TSR_RETURN_IF_ERROR(copy_.copy_tensor(id));
      }
      if (id == hidden_) hidden_result_ = copy_.mapped(id);
    }
    return add_results();
  }

 private:
  friend class ServingBuilder;

  Graph& graph() { return copy_.graph(); }

  Status check_options() const {
    for (const auto& [what, value] :
         {std::pair("pages", options_.pages), std::pair("page_size", options_.page_size),
          std::pair("rows", options_.rows), std::pair("context", options_.context)})
      if (value < 1) return unsuitable(format("serving: {} is {}, wanted 1 or more", what, value));
    if (options_.window_pages < 0)
      return unsuitable(format("serving: window_pages is {}, wanted 0 or more", options_.window_pages));
    if (options_.adapter_slots < 0 || (options_.adapter_slots > 0 && options_.adapter_rank < 1))
      return unsuitable(
          format("serving: adapter_slots is {} and adapter_rank {}, wanted 0 or more and 1 or more",
                 options_.adapter_slots, options_.adapter_rank));
    if (options_.adapter_slots > 0 && options_.adapter_head && !adapters_.has_head())
      return unsuitable(
          "serving: adapters of the head are asked for, and no product with a parameter makes the logits: leave the head out");
    return {};
  }

  Status find_operands() {
    TSR_ASSIGN_OR_RETURN(const LanguageModel model, find_language_model(forward_, "serving"));
    logits_ = model.logits, tokens_ = model.tokens, positions_ = model.positions;
    TSR_RETURN_IF_ERROR(check_position_table(forward_, model, "context", options_.context));
    const int64_t switch_at = rope_switch(forward_);
    if (options_.rows > 1 && switch_at > 0 && options_.context > switch_at)
      return Status(
          StatusCode::kUnsupported,
          format("context is {}; sequences of more than {} tokens are rotated by other factors from their "
                 "first token on (LongRoPE), which steps of several sequences do not follow: wanted one "
                 "sequence, or at most {}",
                 options_.context, switch_at, switch_at));
    return {};
  }

  Status add_inputs() {
    // A step has any number of tokens, whatever the model's context.
    const TensorType per_token{DType::kI32, {forward_.type(tokens_).shape[0], graph().symbol("N")}};
    TSR_ASSIGN_OR_RETURN(const TensorId tokens, graph().add_tensor("tokens", per_token, TensorKind::kInput));
    copy_.replace(tokens_, tokens);
    TSR_ASSIGN_OR_RETURN(of_step_.row, graph().add_tensor("row", per_token, TensorKind::kInput));
    TSR_ASSIGN_OR_RETURN(of_step_.position, graph().add_tensor("positions", per_token, TensorKind::kInput));
    if (positions_ != kNoTensor) copy_.replace(positions_, of_step_.position);
    if (const auto hidden = forward_.find_tensor(kDraftHidden); hidden && forward_.tensor(*hidden).kind == TensorKind::kInput) {
      TensorType type = forward_.type(*hidden);
      type.shape.set(1, per_token.shape[1]);
      TSR_ASSIGN_OR_RETURN(const TensorId given, graph().add_tensor(std::string(kDraftHidden), type, TensorKind::kInput));
      copy_.replace(*hidden, given);
    }
    const TensorType table{DType::kI32, {options_.rows, table_columns(options_)}};
    const bool has_windows = options_.window_pages > 0 && paged_window(forward_, options_.context) > 0;
    if (!has_windows || has_full_attention(forward_, options_.context)) {
      TSR_ASSIGN_OR_RETURN(full_.slot, graph().add_tensor("slot", per_token, TensorKind::kInput));
      TSR_ASSIGN_OR_RETURN(full_.table, graph().add_tensor("page_table", table, TensorKind::kInput));
    }
    if (has_windows) {
      window_.pages = options_.window_pages;
      TSR_ASSIGN_OR_RETURN(window_.slot, graph().add_tensor("window_slot", per_token, TensorKind::kInput));
      TSR_ASSIGN_OR_RETURN(window_.table,
                           graph().add_tensor(std::string(kWindowTable), table, TensorKind::kInput));
    }
    const TensorType wanted{DType::kI32, {graph().symbol("W")}};
    TSR_ASSIGN_OR_RETURN(wanted_, graph().add_tensor("wanted", wanted, TensorKind::kInput));
    if (options_.adapter_slots > 0) {
      TSR_ASSIGN_OR_RETURN(of_step_.adapter, graph().add_tensor("adapter", per_token, TensorKind::kInput));
    }
    return {};
  }

  Status add_node(NodeId id) {
    of_node_ = of_step_;
    return requested_->has(id) ? add_requested(id) : add_copy(id);
  }

  // The node with rows [W, 1, ...] of requested tokens in place of those [B, N, ...] of all.
  Status add_requested(NodeId id) {
    const Node& node = forward_.node(id);
    std::vector<std::pair<TensorId, TensorId>> of_all;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const TensorId input = node.inputs[i];
      if (!requested_->reads_rows(id, i) || requested_->makes(input)) continue;
      of_all.emplace_back(input, copy_.mapped(input));
      TSR_ASSIGN_OR_RETURN(const TensorId rows, requested_rows(copy_.mapped(input), node.scope));
      copy_.replace(input, rows);
    }
    if (node.op->context.mixes_tokens) {
      TSR_ASSIGN_OR_RETURN(of_node_.row, requested_rows(of_step_.row, node.scope));
      TSR_ASSIGN_OR_RETURN(of_node_.position, requested_rows(of_step_.position, node.scope));
    }
    if (of_step_.adapter != kNoTensor && adapters_.applies_to(node)) {
      TSR_ASSIGN_OR_RETURN(of_node_.adapter, requested_rows(of_step_.adapter, node.scope));
    }
    TSR_RETURN_IF_ERROR(add_copy(id));
    for (auto each = of_all.rbegin(); each != of_all.rend(); ++each) copy_.replace(each->first, each->second);
    return {};
  }

  Status add_copy(NodeId id) {
    const Node& node = forward_.node(id);
    if (of_node_.adapter != kNoTensor && adapters_.applies_to(node))
      return adapters_.add_product(copy_, id, {.adapter = of_node_.adapter});
    if (node.op->routing_scores >= 0) return copy_.copy_node(id, unbounded_routing(node));
    if (node.op->context.mixes_tokens)
      return add_mixing(id).with_context(format("{} '{}'", node.op->name, node.scope));
    return node.op->serve == nullptr ? copy_.copy_node(id) : serve(id);
  }

  // The op's own form in a step.
  Status serve(NodeId id) {
    ServingBuilder builder(*this, id);
    graph().set_scope(forward_.node(id).scope);
    TSR_RETURN_IF_ERROR(forward_.node(id).op->serve(builder));
    graph().set_scope("");
    return {};
  }

  // Adds the row of factors [1, D / 2] for all tokens of a step.
  Result<TensorId> add_factors(TensorId rows, int64_t switch_at) {
    if (options_.context <= switch_at)
      return graph().add("slice", {rows}, {{"dim", int64_t{0}}, {"begin", int64_t{0}}, {"end", int64_t{1}}});
    if (rope_row_ == kNoTensor) {
      TSR_ASSIGN_OR_RETURN(rope_row_, graph().add_tensor("rope_row", {DType::kI32, {1}}, TensorKind::kInput));
    }
    TSR_ASSIGN_OR_RETURN(const TensorId split,
                         graph().add("split_dim", {rows}, {{"dim", int64_t{0}}, {"inner", int64_t{2}}}));
    return graph().add("select_row", {split, rope_row_});
  }

  // The same for all nodes that read `rows`, of the forward graph.
  Result<TensorId> find_factors(const Node& node, TensorId rows, int64_t switch_at) {
    TensorId& factors = factors_.try_emplace(rows, kNoTensor).first->second;
    if (factors != kNoTensor) return factors;
    graph().set_scope("embedding");
    TSR_ASSIGN_OR_RETURN(factors, add_factors(copy_.mapped(rows), switch_at));
    graph().set_scope(node.scope);
    return factors;
  }

  // Pool: pages of some attentions, and the inputs with positions in them.
  struct Pool {
    int64_t pages;
    TensorId slot = kNoTensor, table = kNoTensor;
  };

  // `type`: of rows [B, T, KV, D]; `what` names them.
  Result<TensorId> add_pages(const Node& node, std::string_view which, TensorType type, const Pool& pool,
                             std::string_view what) {
    type.shape.set(0, pool.pages);
    type.shape.set(1, options_.page_size);
    if (options_.cache) type.dtype = *options_.cache;
    const int64_t width = type.shape[3], block = info(type.dtype).block_elements;
    if (width % block != 0)
      return unsuitable(
          format("its {} are {} wide, and pages of {} hold blocks of {} numbers: wanted a multiple of {}, or "
                 "cache_type model, f16 or bf16",
                 what, width, type.dtype, block, block));
    return add_scoped_state(graph(), node.scope, which, type);
  }

  Status add_mixing(NodeId id) {
    const Node& node = forward_.node(id);
    const int segments = first_segment(*node.op, node.attrs);
    if (attr_i64_or(node.attrs, "causal", 1) != 1)
      return unsuitable("it is not causal: earlier positions would change with every token");
    if (segments >= 0 && node.inputs.size() > static_cast<size_t>(segments))
      return unsuitable("it has segments: a sequence is one document; build the model without them");
    if (node.op->serve == nullptr)
      return unsuitable("its op has no form for steps of many sequences (OpDef::serve)");
    const auto latent = sees_context(node) ? absorbed_form(node) : std::nullopt;
    if (!latent) return serve(id);
    graph().set_scope(node.scope);
    TSR_RETURN_IF_ERROR(add_latent_attention(node, *latent, pool_of(attr_i64(node.attrs, "window"))));
    graph().set_scope("");
    return {};
  }

  const Pool& pool_of(int64_t window) const {
    const bool has_own_pages = window_.pages > 0 && window > 0 && window < options_.context;
    return has_own_pages ? window_ : full_;
  }

  // Adds pages, and writes rows [B, T, KV, D] to them; returns the written pages. Attentions that read the same rows share them.
  Result<TensorId> add_written_pages(const Node& node, std::string_view which, TensorId rows,
                                     const Pool& pool, std::string_view what) {
    TensorId& written = written_.try_emplace({rows, &pool}, kNoTensor).first->second;
    if (written != kNoTensor) return written;
    TSR_ASSIGN_OR_RETURN(const TensorId pages, add_pages(node, which, graph().type(rows), pool, what));
    TSR_ASSIGN_OR_RETURN(written, graph().add("kv_write", {pages, rows, pool.slot}));
    graph().add_update(pages, written);
    return written;
  }

  // Returns the parts of latent attention if its pages can hold latent
  // vectors: not where tokens have adapters of the weight to be absorbed.
  std::optional<LatentAttention> absorbed_form(const Node& node) const {
    auto latent = find_latent_attention(forward_, node);
    const auto is_adapted = [&](NodeId id) { return adapters_.applies_to(forward_.node(id)); };
    if (latent && of_step_.adapter != kNoTensor && std::ranges::any_of(latent->matmuls, is_adapted))
      return std::nullopt;
    return latent;
  }

  Status add_latent_attention(const Node& node, const LatentAttention& latent, const Pool& pool) {
    is_absorbed_ = true;
    std::vector<Attr> attrs = ops::paged_attrs(node.attrs, uses_[index(node.outputs[1])] != 0);
    attrs.push_back({"value_width", latent.rank});
    double& scale = std::get<double>(attrs[0].value);
    if (scale == 0) scale = 1 / std::sqrt(static_cast<double>(forward_.type(node.inputs[0]).shape[3]));
    TSR_ASSIGN_OR_RETURN(const TensorId rows, add_latent_rows(copy_, latent));
    TSR_ASSIGN_OR_RETURN(
        const TensorId pages,
        add_written_pages(node, "latent_pages", rows, pool, "latent vectors with the rotated part of keys"));
    TSR_ASSIGN_OR_RETURN(const TensorId queries, add_absorbed_queries(copy_, latent, node));
    const TensorId operands[] = {queries, pages, pool.table, of_node_.row, of_node_.position};
    TSR_ASSIGN_OR_RETURN(const std::vector<TensorId> results,
                         graph().add_node("attention_paged", operands, std::move(attrs)));
    TSR_ASSIGN_OR_RETURN(const TensorId values, add_head_values(copy_, latent, results[0]));
    copy_.replace(node.outputs[0], values);
    if (results.size() > 1) copy_.replace(node.outputs[1], results[1]);
    return {};
  }

  // Adds the rows [W, 1, ...] of requested tokens of `all` [B, N, ...], in the new graph, once.
  Result<TensorId> requested_rows(TensorId all, const std::string& scope) {
    TensorId& rows = rows_.try_emplace(all, kNoTensor).first->second;
    if (rows != kNoTensor) return rows;
    graph().set_scope(scope);
    TSR_ASSIGN_OR_RETURN(const TensorId flat, graph().add("select_rows", {all, wanted_}));
    TSR_ASSIGN_OR_RETURN(rows, graph().add("split_dim", {flat}, {{"dim", int64_t{0}}, {"inner", int64_t{1}}}));
    graph().set_scope("");
    return rows;
  }

  // The logits [W, V] of requested tokens.
  Result<TensorId> requested_logits() {
    graph().set_scope("output");
    const TensorId made = copy_.mapped(logits_);
    return requested_->makes(logits_) ? graph().add("merge_dims", {made}, {{"dim", int64_t{0}}})
                                      : graph().add("select_rows", {made, wanted_});
  }

  Status add_result(std::string_view name, TensorId result) {
    if (is_half_type(graph().type(result).dtype)) {
      graph().set_scope("output");
      TSR_ASSIGN_OR_RETURN(result, graph().add("cast", {result}, {{"dtype", to_text(DType::kF32)}}));
      graph().set_scope("");
    }
    return graph().add_output(std::string(name), result);
  }

  Result<Graph> add_results() {
    TSR_ASSIGN_OR_RETURN(const TensorId logits, requested_logits());
    graph().set_scope("");
    TSR_RETURN_IF_ERROR(add_result("logits", logits));
    if (options_.hidden) TSR_RETURN_IF_ERROR(add_result("hidden", hidden_result_));
    if (is_absorbed_) return prune(graph());  // removes the producers of keys and values
    return std::move(graph());
  }

  const ServingOptions options_;
  const Graph& forward_;
  GraphCopy copy_;
  RowAdapters adapters_;
  TensorId logits_ = kNoTensor, tokens_ = kNoTensor, positions_ = kNoTensor;  // of the forward graph
  TensorId hidden_ = kNoTensor;
  std::optional<RequestedNodes> requested_;  // of the forward graph
  std::map<TensorId, TensorId> rows_;        // of requested tokens, by those of all, in the new graph
  TensorId hidden_result_ = kNoTensor;                                                      // of the new graph
  // Inputs of numbers by token, in the new graph: of all tokens of the step, and of those of the node that is being added.
  struct TokenNumbers {
    TensorId row = kNoTensor, position = kNoTensor, adapter = kNoTensor;
  };
  TokenNumbers of_step_, of_node_;
  Pool full_, window_{0};                                                                   // likewise
  TensorId wanted_ = kNoTensor, rope_row_ = kNoTensor;
  bool is_absorbed_ = false;
  std::map<std::pair<TensorId, const Pool*>, TensorId> written_;  // pages, by their rows and pool
  std::map<TensorId, TensorId> factors_;  // of rotations: the selected row, by the forward graph's rows
  std::vector<uint32_t> uses_;            // operand uses, by forward tensor
};

std::span<const Attr> ServingBuilder::attrs() const { return owner_.forward_.node(node_).attrs; }
TensorId ServingBuilder::input(int i) const {
  return owner_.copy_.mapped(owner_.forward_.node(node_).inputs[static_cast<size_t>(i)]);
}
const TensorType& ServingBuilder::input_type(int i) const {
  return owner_.forward_.type(owner_.forward_.node(node_).inputs[static_cast<size_t>(i)]);
}
bool ServingBuilder::is_read(int i) const {
  return owner_.uses_[index(owner_.forward_.node(node_).outputs[static_cast<size_t>(i)])] != 0;
}
Result<std::vector<TensorId>> ServingBuilder::emit(std::string_view op, const std::vector<TensorId>& inputs,
                                                   std::vector<Attr> attrs) {
  return owner_.graph().add_node(op, inputs, std::move(attrs));
}
void ServingBuilder::set_output(int i, TensorId output) {
  owner_.copy_.replace(owner_.forward_.node(node_).outputs[static_cast<size_t>(i)], output);
}
Status ServingBuilder::copy() { return owner_.copy_.copy_node(node_); }
Result<TensorId> ServingBuilder::add_pages(std::string_view which, TensorId rows, int64_t window,
                                           std::string_view what) {
  return owner_.add_written_pages(owner_.forward_.node(node_), which, rows, owner_.pool_of(window), what);
}
Result<TensorId> ServingBuilder::add_row_state(std::string_view which, const TensorType& row) {
  TensorType type = {row.dtype, {owner_.options_.rows + owner_.options_.spare_rows}};
  for (const int64_t extent : row.shape.dims()) type.shape.push_back(extent);
  return add_scoped_state(owner_.graph(), owner_.forward_.node(node_).scope, which, type);
}
void ServingBuilder::set_row_state(TensorId state, TensorId value) { owner_.graph().add_update(state, value); }
TensorId ServingBuilder::page_table(int64_t window) const { return owner_.pool_of(window).table; }
TensorId ServingBuilder::row() const { return owner_.of_node_.row; }
TensorId ServingBuilder::position() const { return owner_.of_node_.position; }
Result<TensorId> ServingBuilder::select_by_length(int i, int64_t threshold) {
  const Node& node = owner_.forward_.node(node_);
  return owner_.find_factors(node, node.inputs[static_cast<size_t>(i)], threshold);
}

int64_t rope_switch(const Graph& forward) {
  for (const Node& node : forward.nodes())
    if (const int64_t switch_at = attr_i64_or(node.attrs, "switch_at", 0); switch_at > 0) return switch_at;
  return 0;
}

int64_t usual_page_size(int64_t context) {
  constexpr int64_t kUnit = 16;
  return std::min(kPageTokens, (context + kUnit - 1) / kUnit * kUnit);
}

int64_t table_columns(const ServingOptions& options) {
  return (options.context + options.page_size - 1) / options.page_size;
}

int64_t paged_window(const Graph& forward, int64_t context) {
  int64_t largest = 0;
  for (const Node& node : forward.nodes())
    if (sees_context(node)) largest = std::max(largest, window_within(node, context));
  return largest;
}

bool has_full_attention(const Graph& forward, int64_t context) {
  return std::ranges::any_of(forward.nodes(), [context](const Node& node) {
    return sees_context(node) && window_within(node, context) == 0;
  });
}

std::set<std::string> window_states(const Graph& serving) {
  std::set<std::string> names;
  const auto state_of = [&](TensorId written) {
    const NodeId writer = serving.tensor(written).producer;
    const TensorId state = writer == kNoNode ? written : serving.node(writer).inputs[0];
    names.insert(serving.tensor(state).name);
  };
  for (const Node& node : serving.nodes()) {
    const PageOperands& pages = node.op->pages;
    if (pages.first < 0 || pages.is_written) continue;
    const size_t table = node.inputs.size() - static_cast<size_t>(pages.behind);
    if (serving.tensor(node.inputs[table]).name != kWindowTable) continue;
    for (auto at = static_cast<size_t>(pages.first); at < table; ++at) state_of(node.inputs[at]);
  }
  return names;
}

std::set<std::string> row_states(const Graph& serving) {
  std::set<std::string> names;
  for (const Node& node : serving.nodes())
    if (const int at = node.op->row_state; at >= 0)
      names.insert(serving.tensor(node.inputs[static_cast<size_t>(at)]).name);
  return names;
}

Result<Graph> make_serving(const Graph& forward, const ServingOptions& options) {
  TensorId hidden = kNoTensor;
  if (options.hidden) {
    TSR_ASSIGN_OR_RETURN(hidden, find_hidden(forward));
  }
  TSR_ASSIGN_OR_RETURN(const Graph ordered, logits_alone(forward, hidden));
  return ServingGraph(ordered, options).run();
}

}  // namespace tessera
