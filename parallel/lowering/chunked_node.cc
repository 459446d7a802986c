// Nodes that run in slices of one factor (ALGEBRA rule 7). Per slice the
// operands with the factor are cut and converted to their target layout, so
// that only a slice of a gathered operand exists at a time; results with the
// factor are concatenated, others are added (or merged, as the op defines).
#include "parallel/lowering/chunked_node.h"

namespace tessera {

Status EntryEmitter::emit_chunks(NodeId id, EmitPhase phase) {
  class Chunks : public ChunkedNode {
   public:
    using ChunkedNode::ChunkedNode;

    Status run() {
      TSR_RETURN_IF_ERROR(locate());
      const std::vector<FactorView> views = e_.views_of(id_);
      const FactorView& whole = views[factor_];
      if (whole.range_count != 1) return refuse("it lies zig-zag");
      const Range mine{whole.begin[0], whole.end[0]};
      const int64_t units = mine.size() / whole.unit;
      if (units < plan_.chunks) return refuse(format("{} units are there; at most {}", units, units));
      start_outputs();
      for (int32_t j = 0; j < plan_.chunks; ++j) {
        std::vector<FactorView> part = views;
        const Range range = split_range(mine, whole.unit, plan_.chunks, j);
        part[factor_].begin[0] = range.begin;
        part[factor_].end[0] = range.end;
        TSR_RETURN_IF_ERROR(slice(range, std::move(part)));
      }
      publish_sums();
      for (size_t o = 0; o < outputs_.size(); ++o)
        if (outputs_[o].dim >= 0) publish(o, target_[o], whole_[o]);
      return {};
    }

   private:
    // Results with the factor go directly to their final layout, slice by slice, so that a reduced
    // value is never whole on one rank: a gradient in its stored layout, an addend in its readers'.
    void start_outputs() {
      target_.resize(outputs_.size());
      whole_.resize(outputs_.size());
      for (size_t o = 0; o < outputs_.size(); ++o) {
        if (outputs_[o].dim < 0) continue;
        target_[o] = sharding_.outputs[o];
        if (!target_[o].partial.empty()) target_[o] = wanted(o);
        whole_[o] = slot("chunks", output(o), e_.builder_.local_type(type(output(o)), target_[o]));
      }
    }

    ShardingSpec wanted(size_t o) const {
      const ShardingSpec& produced = sharding_.outputs[o];
      const TensorId id = output(o);
      const Graph& graph = e_.layout_.graph;
      std::optional<ShardingSpec> common;
      if (e_.layout_.accumulated[index(id)] && e_.layout_.micro_batches > 1) {
        common = e_.layout_.accumulate[index(id)];
      } else {
        for (size_t n = 0; n < graph.nodes().size(); ++n)
          for (size_t i = 0; i < graph.nodes()[n].inputs.size(); ++i) {
            if (graph.nodes()[n].inputs[i] != id || !reads_input(graph.nodes()[n], i)) continue;
            const ShardingSpec& want = e_.layout_.nodes[n].inputs[i];
            if (common && !(*common == want)) return produced;
            common = want;
          }
      }
      if (!common) return produced;
      const auto path = e_.layout_.resharder->path(produced, *common, type(id).shape, type(id).dtype);
      // Only reductions; a gather would enlarge it.
      const bool reduces =
          path.ok() && !path->moves.empty() && std::ranges::all_of(path->moves, [](const Move& move) {
            return move.kind == MoveKind::kReduceScatter || move.kind == MoveKind::kAllReduce ||
                   move.kind == MoveKind::kSlice;
          });
      return reduces ? *common : produced;
    }

    Status slice(Range range, std::vector<FactorView> views) {
      std::vector<SlotRef> ins(inputs_.size()), outs;
      std::vector<TensorType> in_types, out_types;
      for (size_t i = 0; i < inputs_.size(); ++i) {
        const DimWindow window = window_of(inputs_[i], range);
        in_types.push_back(e_.builder_.local_type(type(input(i)), sharding_.inputs[i], window));
        if (!reads_input(node_, i)) continue;
        if (window.dim < 0) {
          TSR_ASSIGN_OR_RETURN(ins[i], e_.materialize(input(i), sharding_.inputs[i], phase_, id_));
        } else {
          TSR_ASSIGN_OR_RETURN(ins[i], e_.materialize_slice(input(i), sharding_.inputs[i], window, phase_, id_));
        }
      }
      for (size_t o = 0; o < outputs_.size(); ++o) {
        out_types.push_back(
            e_.builder_.local_type(type(output(o)), sharding_.outputs[o], window_of(outputs_[o], range)));
        outs.push_back(slot("chunk", output(o), out_types.back()));
      }
      TSR_RETURN_IF_ERROR(
          e_.launch(id_, std::move(in_types), out_types, std::move(views), std::move(ins), outs));
      std::vector<SlotRef> sums;
      for (size_t o = 0; o < outputs_.size(); ++o) {
        if (outputs_[o].dim < 0)
          sums.push_back(outs[o]);
        else
          TSR_RETURN_IF_ERROR(place(o, range, outs[o]));
      }
      return sums.empty() ? Status() : merge(sums);
    }

    // Places a slice of output `o` into the whole.
    Status place(size_t o, Range range, SlotRef at) {
      const DimWindow window = window_of(outputs_[o], range);
      const TensorType& global = type(output(o));
      TSR_ASSIGN_OR_RETURN(
          const ReshardPath path,
          e_.layout_.resharder->path(sharding_.outputs[o], target_[o], global.shape, global.dtype));
      const RankBuilder::MoveContext context{name(output(o)), id_, e_.micro_batch_, e_.entry_, window};
      for (const Move& move : path.moves)
        at = e_.builder_.emit_move(move, global, at, nullptr, context, e_.out_.code);
      const TensorType part = e_.builder_.local_type(global, target_[o], window);
      const TensorType whole = e_.builder_.local_type(global, target_[o]);
      const int64_t first = e_.builder_.local_dim(global, target_[o], window.dim, window).begin -
                            e_.builder_.local_dim(global, target_[o], window.dim).begin;
      e_.copy_window(part, at, 0, whole, whole_[o], first, window.dim, part.shape[window.dim], id_);
      return {};
    }

    std::vector<ShardingSpec> target_;
    std::vector<SlotRef> whole_;
  };
  return Chunks(*this, id, phase).run();
}

}  // namespace tessera
