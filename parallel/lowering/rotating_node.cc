// Rotating: the slices are what the ranks of an axis hold. Each rank starts with its own and passes on what
// it has (ring attention, Liu et al., 2023), one of two ways:
// - around: every slice visits every rank, passed to the rank before. Results that have the factor travel
// with
//   their slice as running sums and end where the slice is at home.
// - onward, where a causal mask and contiguous shards let slice i count for the ranks from i on only: slices
// are
//   passed to the rank after and stop at the last. Results go straight home from every rank, so that all
//   ranks begin at once. Half as much is sent.
#include "parallel/lowering/chunked_node.h"

namespace tessera {

Status EntryEmitter::emit_rotating(NodeId id, EmitPhase phase) {
  class Rotation : public ChunkedNode {
   public:
    using ChunkedNode::ChunkedNode;

    Status run() {
      TSR_RETURN_IF_ERROR(locate());
      TSR_RETURN_IF_ERROR(find_axis());
      TSR_RETURN_IF_ERROR(fetch_fixed());
      onward_ = counts_onward_only();
      for (size_t o = 0; o < outputs_.size(); ++o)
        if (outputs_[o].dim >= 0) returning_.push_back(o);
      if (returning_.empty()) return rotate_operands();
      return onward_ ? send_results_home() : carry_results();
    }

   private:
    using Block = std::vector<SlotRef>;  // rotating operands, in order

    int32_t ranks() const { return plan_.chunks; }
    // Slices that visit this rank, its own first.
    int32_t visits() const { return onward_ ? position_ + 1 : ranks(); }
    int32_t owner(int32_t step) const { return onward_ ? position_ - step : (position_ + step) % ranks(); }
    int32_t rank_of(int32_t position) const { return members_[static_cast<size_t>(position)]; }

    // Finds the slices' axis: it splits another factor of the node and has a rank per
    // slice; of several, the one over which an operand with the factor is stored.
    Status find_axis() {
      if (!sharding_.factors[factor_].axes.empty()) return refuse("it is split as well");
      std::vector<AxisId> axes;
      for (const DimSharding& split : sharding_.factors)
        for (const AxisId axis : split.axes)
          if (e_.layout_.mesh.axis_size(axis) == ranks()) axes.push_back(axis);
      const auto first = std::ranges::find_if(inputs_, [](const At& at) { return at.dim >= 0; });
      if (first == inputs_.end()) return refuse("no operand has it");
      const auto i = static_cast<size_t>(first - inputs_.begin());
      for (const Copy& copy : e_.copies_of(input(i), phase_)) {
        // The outermost; axes behind it split a slice.
        const DimSharding& split = copy.spec.dims[static_cast<size_t>(first->dim)];
        const auto outermost = std::ranges::find_first_of(split.axes, axes);
        if (outermost != split.axes.end()) home_ = {{*outermost}, split.unit};
      }
      if (home_.axes.empty() && axes.size() == 1) home_ = {{axes[0]}, 1};
      if (home_.axes.empty())
        return refuse(format("no axis of {} ranks splits another factor of the node", ranks()));
      if (type(input(i)).shape[first->dim] / home_.unit < ranks())
        return refuse(format("{} pieces are there", type(input(i)).shape[first->dim] / home_.unit));
      for (size_t o = 0; o < outputs_.size(); ++o) {
        const std::vector<AxisId>& sums = sharding_.outputs[o].partial;
        if (outputs_[o].dim >= 0 && std::ranges::find(sums, home_.axes[0]) == sums.end())
          return refuse("a result that has it is no sum over the ranks, and cannot travel with the slices");
      }
      const auto& group = e_.builder_.program.groups[static_cast<size_t>(e_.builder_.group(home_.axes))];
      position_ = group.position;
      members_ = group.ranks;
      return {};
    }

    // `spec` with the factor's dim stored over the axis.
    ShardingSpec at_home(ShardingSpec spec, const At& at) const {
      DimSharding& dim = spec.dims[static_cast<size_t>(at.dim)];
      if (dim.axes.empty()) dim.unit = home_.unit;
      dim.axes.push_back(home_.axes[0]);
      std::erase(spec.partial, home_.axes[0]);  // results are summed on the way home
      return spec;
    }

    TensorType block_type(TensorId id, const ShardingSpec& home, const At& at, int32_t owner) const {
      TensorType local = e_.builder_.local_type(type(id), home);
      const auto extents = e_.builder_.member_extents(home, type(id).shape[at.dim], at.dim, home_.axes);
      local.shape.set(at.dim, extents[static_cast<size_t>(owner)]);
      return local;
    }

    Status fetch_fixed() {
      fixed_.resize(inputs_.size());
      for (size_t i = 0; i < inputs_.size(); ++i) {
        if (!reads_input(node_, i)) continue;
        if (inputs_[i].dim < 0) {
          TSR_ASSIGN_OR_RETURN(fixed_[i], e_.materialize(input(i), sharding_.inputs[i], phase_, id_));
          continue;
        }
        TSR_ASSIGN_OR_RETURN(const SlotRef own,
                             e_.materialize(input(i), at_home(sharding_.inputs[i], inputs_[i]), phase_, id_));
        own_.push_back(own);
        moving_.push_back(i);
      }
      return {};
    }

    // Whether slice i affects exactly the ranks from i on.
    bool counts_onward_only() const {
      const ShardingRule& rule = sharding_.rule;
      if (rule.order.earlier != plan_.chunk_factor || e_.layout_.is_zigzag(id_, factor_, home_)) return false;
      const Factor* later = rule.find(rule.order.later);
      const DimSharding& split = sharding_.factors[static_cast<size_t>(later - rule.factors.data())];
      if (split.axes != home_.axes) return false;
      for (int32_t i = 0; i < ranks(); ++i) {
        const Range slice = slice_range(i);
        for (int32_t r = 0; r < ranks(); ++r) {
          const Range seen_by = split_range({0, later->extent}, split.unit, ranks(), r);
          if ((slice.begin < seen_by.end && seen_by.size() > 0) != (r >= i)) return false;
        }
      }
      return true;
    }

    int64_t slice_unit() const { return std::max<int64_t>(1, home_.unit / inputs_[moving_[0]].span); }
    Range slice_range(int32_t owner) const {
      return split_range({0, sharding_.rule.factors[factor_].extent}, slice_unit(), ranks(), owner);
    }

    TensorType input_block(size_t m, int32_t owner) const {
      const size_t i = moving_[m];
      return block_type(input(i), at_home(sharding_.inputs[i], inputs_[i]), inputs_[i], owner);
    }
    TensorType result_block(size_t o, int32_t owner) const {
      return block_type(output(o), at_home(sharding_.outputs[o], outputs_[o]), outputs_[o], owner);
    }

    void send(int32_t to, int64_t size, SlotRef at) {
      e_.out_.code.emplace_back(SendInst{rank_of(to), size, at, id_, e_.micro_batch_});
    }
    void receive(int32_t from, int64_t size, SlotRef at) {
      e_.out_.code.emplace_back(RecvInst{rank_of(from), size, at, id_, e_.micro_batch_});
    }
    int32_t before() const { return (position_ + ranks() - 1) % ranks(); }
    int32_t after() const { return (position_ + 1) % ranks(); }

    // Sends the block of `step` to the next rank that needs
    // it, and receives the next one, if any, in one exchange.
    Block next_block(const Block& block, int32_t step) {
      Block next;
      const bool passes = onward_ ? position_ + 1 < ranks() : step + 1 < ranks();
      for (size_t m = 0; passes && m < moving_.size(); ++m)
        send(onward_ ? after() : before(), bytes(input_block(m, owner(step))), block[m]);
      for (size_t m = 0; step + 1 < visits() && m < moving_.size(); ++m) {
        const TensorType type = input_block(m, owner(step + 1));
        next.push_back(slot("rotate", input(moving_[m]), type));
        receive(onward_ ? before() : after(), bytes(type), next.back());
      }
      return next;
    }

    // Runs the kernel on one block; returns results with the factor, and merges the others.
    Result<Block> work(const Block& block, int32_t owner) {
      std::vector<FactorView> views = e_.views_of(id_);
      FactorView& view = views[factor_];
      view.unit = slice_unit();
      const Range range = slice_range(owner);
      view.begin[0] = range.begin;
      view.end[0] = range.end;
      if (e_.layout_.is_zigzag(id_, factor_, home_)) e_.layout_.zigzag_view({home_.axes, view.unit}, view);
      std::vector<TensorType> in_types, out_types;
      std::vector<SlotRef> ins = fixed_, outs;
      size_t m = 0;
      for (size_t i = 0; i < inputs_.size(); ++i) {
        const bool moves = inputs_[i].dim >= 0;
        in_types.push_back(
            moves ? block_type(input(i), at_home(sharding_.inputs[i], inputs_[i]), inputs_[i], owner)
                  : e_.builder_.local_type(type(input(i)), sharding_.inputs[i]));
        if (moves && reads_input(node_, i)) ins[i] = block[m++];
      }
      for (size_t o = 0; o < outputs_.size(); ++o) {
        out_types.push_back(
            outputs_[o].dim >= 0
                ? block_type(output(o), at_home(sharding_.outputs[o], outputs_[o]), outputs_[o], owner)
                : e_.builder_.local_type(type(output(o)), sharding_.outputs[o]));
        outs.push_back(slot("block", output(o), out_types.back()));
      }
      TSR_RETURN_IF_ERROR(
          e_.launch(id_, std::move(in_types), out_types, std::move(views), std::move(ins), outs));
      Block results, sums;
      for (size_t o = 0; o < outputs_.size(); ++o) (outputs_[o].dim >= 0 ? results : sums).push_back(outs[o]);
      if (!sums.empty()) TSR_RETURN_IF_ERROR(merge(sums));
      return results;
    }

    // Rotates operands only: computes on its own block first, while the next is on its way.
    Status rotate_operands() {
      Block block = own_;
      for (int32_t step = 0; step < visits(); ++step) {
        Block next = next_block(block, step);
        TSR_RETURN_IF_ERROR(work(block, owner(step)).status());
        block = std::move(next);
      }
      publish_sums();
      return {};
    }

    Status add_to(Block& sums, const Block& parts, int32_t owner) {
      for (size_t w = 0; w < returning_.size(); ++w) {
        const size_t o = returning_[w];
        TSR_ASSIGN_OR_RETURN(sums[w], add(result_block(o, owner), sums[w], parts[w], output(o)));
      }
      return {};
    }

    // Receives results for the block of `owner` from rank `from`.
    Block receive_results(int32_t from, int32_t owner) {
      Block arriving;
      for (const size_t o : returning_) {
        const TensorType type = result_block(o, owner);
        arriving.push_back(slot("rotate", output(o), type));
        receive(from, bytes(type), arriving.back());
      }
      return arriving;
    }
    void send_results(int32_t to, int32_t owner, const Block& parts) {
      for (size_t w = 0; w < returning_.size(); ++w)
        send(to, bytes(result_block(returning_[w], owner)), parts[w]);
    }

    // Around: results travel with their block; the own block is last, when its sums arrive.
    Status carry_results() {
      Block block = own_, sums;
      for (int32_t step = 1; step <= ranks(); ++step) {
        const Block here = step == ranks() ? own_ : next_block(block, step - 1);
        TSR_ASSIGN_OR_RETURN(Block parts, work(here, owner(step)));
        if (!sums.empty()) TSR_RETURN_IF_ERROR(add_to(sums, parts, owner(step)));
        if (sums.empty()) sums = std::move(parts);
        if (step == ranks()) break;
        send_results(before(), owner(step), sums);
        sums = receive_results(after(), owner(step + 1));
        block = here;
      }
      publish_results(sums);
      return {};
    }

    // Onward: at step s this rank computes for the one s before it, and receives from the one s behind.
    Status send_results_home() {
      Block block = own_, sums;
      for (int32_t step = 0; step < ranks(); ++step) {
        Block parts, next;
        if (step < visits()) {
          next = next_block(block, step);
          TSR_ASSIGN_OR_RETURN(parts, work(block, owner(step)));
        }
        if (step == 0) {
          sums = std::move(parts);
        } else {
          if (step < visits()) send_results(owner(step), owner(step), parts);
          if (position_ + step < ranks()) {
            const Block arriving = receive_results(position_ + step, position_);
            TSR_RETURN_IF_ERROR(add_to(sums, arriving, position_));
          }
        }
        block = std::move(next);
      }
      publish_results(sums);
      return {};
    }

    void publish_results(const Block& sums) {
      for (size_t w = 0; w < returning_.size(); ++w) {
        const size_t o = returning_[w];
        publish(o, at_home(sharding_.outputs[o], outputs_[o]), sums[w]);
      }
      publish_sums();
    }

    DimSharding home_;  // only that axis, with the shards' unit
    int32_t position_ = 0;
    std::vector<int32_t> members_;
    std::vector<SlotRef> fixed_;  // by input; null: rotating
    Block own_;
    std::vector<size_t> moving_;     // inputs with the factor
    std::vector<size_t> returning_;  // outputs with it
    bool onward_ = false;
  };
  return Rotation(*this, id, phase).run();
}

}  // namespace tessera
