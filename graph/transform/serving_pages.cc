#include "graph/transform/serving_pages.h"

#include <string>
#include <string_view>

#include "graph/transform/row_adapters.h"
#include "graph/transform/serving.h"

namespace tessera {

namespace {

class PageGraph {
 public:
  explicit PageGraph(const Graph& serving)
      : serving_(serving),
        windows_(window_states(serving)),
        rows_(row_states(serving)),
        slots_(graph_.symbol("N")) {}

  int64_t slots() const { return slots_; }  // N

  Result<TensorId> add_input(std::string name, TensorType type) {
    return graph_.add_tensor(std::move(name), std::move(type), TensorKind::kInput);
  }

  // Returns the input "from" [N] or "slot" [N, 1] of a state's pages.
  Result<TensorId> add_slots(std::string_view what, TensorId pages) {
    std::string name(what);
    if (windows_.contains(graph_.tensor(pages).name)) name = "window_" + name;
    if (const auto found = graph_.find_tensor(name)) return *found;
    const TensorType type =
        what == "from" ? TensorType{DType::kI32, {slots_}} : TensorType{DType::kI32, {slots_, 1}};
    return add_input(std::move(name), type);
  }

  // Calls `body` with each state of pages, in the scope of its attention.
  template <class Body>
  Status for_each_state(Body body) {
    for (const TensorId id : serving_.tensors_of_kind(TensorKind::kState)) {
      const Tensor& given = serving_.tensor(id);
      if (is_adapter_state(given.name) || rows_.contains(given.name)) continue;
      TSR_ASSIGN_OR_RETURN(const TensorId pages,
                           graph_.add_tensor(given.name, given.type, TensorKind::kState));
      graph_.set_scope(given.name.substr(0, given.name.rfind('.')));
      TSR_RETURN_IF_ERROR(body(pages));
      graph_.set_scope("");
    }
    return {};
  }

  // Reads pages [P, S, KV, D] as [N, KV * D].
  Result<TensorId> read(TensorId pages) {
    TSR_ASSIGN_OR_RETURN(const TensorId from, add_slots("from", pages));
    TSR_ASSIGN_OR_RETURN(const TensorId flat, graph_.add("merge_dims", {pages}, {{"dim", int64_t{2}}}));
    return graph_.add("select_rows", {flat, from});
  }

  // Writes rows [N, 1, KV, D].
  Status write(TensorId pages, TensorId rows) {
    TSR_ASSIGN_OR_RETURN(const TensorId slot, add_slots("slot", pages));
    TSR_ASSIGN_OR_RETURN(const TensorId written, graph_.add("kv_write", {pages, rows, slot}));
    graph_.add_update(pages, written);
    return {};
  }

  Graph& graph() { return graph_; }

 private:
  const Graph& serving_;
  const std::set<std::string> windows_, rows_;
  Graph graph_;
  const int64_t slots_;
};

std::string rows_name(const Graph& graph, TensorId pages) { return graph.tensor(pages).name + ".rows"; }

}  // namespace

Result<Graph> make_page_copy(const Graph& serving) {
  PageGraph made(serving);
  Graph& graph = made.graph();
  TSR_RETURN_IF_ERROR(made.for_each_state([&](TensorId pages) -> Status {
    const int64_t D = graph.type(pages).shape[3];
    TSR_ASSIGN_OR_RETURN(const TensorId flat, made.read(pages));  // [N, KV * D]
    TSR_ASSIGN_OR_RETURN(const TensorId heads,
                         graph.add("split_dim", {flat}, {{"dim", int64_t{1}}, {"inner", D}}));  // [N, KV, D]
    TSR_ASSIGN_OR_RETURN(const TensorId rows,
                         graph.add("split_dim", {heads}, {{"dim", int64_t{0}}, {"inner", int64_t{1}}}));
    return made.write(pages, rows);
  }));
  return std::move(graph);
}

Result<Graph> make_page_read(const Graph& serving) {
  PageGraph made(serving);
  Graph& graph = made.graph();
  TSR_RETURN_IF_ERROR(made.for_each_state([&](TensorId pages) -> Status {
    TSR_ASSIGN_OR_RETURN(const TensorId rows, made.read(pages));
    return graph.add_output(rows_name(graph, pages), rows);
  }));
  return std::move(graph);
}

Result<Graph> make_page_write(const Graph& serving) {
  PageGraph made(serving);
  Graph& graph = made.graph();
  TSR_RETURN_IF_ERROR(made.for_each_state([&](TensorId pages) -> Status {
    const TensorType& type = graph.type(pages);
    const TensorType per_slot{type.dtype, {made.slots(), 1, type.shape[2], type.shape[3]}};
    TSR_ASSIGN_OR_RETURN(const TensorId rows, made.add_input(rows_name(graph, pages), per_slot));
    return made.write(pages, rows);
  }));
  return std::move(graph);
}

}  // namespace tessera
