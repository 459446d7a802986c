// Rotating: the slices are what the ranks of an axis hold. Each rank starts with its own and passes on what
// it has, so that every slice visits every rank (ring attention, Liu et al., 2023). Results that have the
// factor travel with their slice as running sums and end where the slice is at home.
#include "parallel/chunked_node.h"

namespace tessera {

Status EntryEmitter::emit_rotating(NodeId id, Era era) {
  class Rotation : public ChunkedNode {
   public:
    using ChunkedNode::ChunkedNode;

    Status run() {
      TSR_RETURN_IF_ERROR(locate());
      TSR_RETURN_IF_ERROR(find_axis());
      TSR_RETURN_IF_ERROR(fetch_fixed());
      const bool returns = std::ranges::any_of(outputs_, [](const At& at) { return at.dim >= 0; });
      return returns ? rotate_results() : rotate_operands();
    }

   private:
    using Block = std::vector<SlotRef>;  // of the operands that rotate, in order

    int32_t ranks() const { return plan_.chunks; }
    int32_t owner(int32_t step) const { return (position_ + step) % ranks(); }

    // The axis that the slices lie on: the one that splits another factor of the node and has a rank for each
    // slice; of several, the one over which an operand with the factor is stored now.
    Status find_axis() {
      if (!sharding_.factors[factor_].axes.empty()) return refuse("it is split as well");
      std::vector<AxisId> axes;
      for (const DimSharding& split : sharding_.factors)
        for (const AxisId axis : split.axes)
          if (e_.layout_.mesh.axis_size(axis) == ranks()) axes.push_back(axis);
      const auto first = std::ranges::find_if(inputs_, [](const At& at) { return at.dim >= 0; });
      if (first == inputs_.end()) return refuse("no operand has it");
      const auto i = static_cast<size_t>(first - inputs_.begin());
      for (const Copy& copy : e_.copies_of(input(i), era_)) {
        const DimSharding& split = copy.spec.dims[static_cast<size_t>(first->dim)];
        const bool fits = !split.axes.empty() && std::ranges::find(axes, split.axes.back()) != axes.end();
        if (fits) home_ = {{split.axes.back()}, split.unit};
      }
      if (home_.axes.empty() && axes.size() == 1) home_ = {{axes[0]}, 1};
      if (home_.axes.empty())
        return refuse(format("no axis of {} ranks splits another factor of the node", ranks()));
      if (type(input(i)).shape[first->dim] / home_.unit < ranks())
        return refuse(format("{} pieces are there", type(input(i)).shape[first->dim] / home_.unit));
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
      std::erase(spec.partial, home_.axes[0]);  // results are summed on their way home
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
          TSR_ASSIGN_OR_RETURN(fixed_[i], e_.obtain(input(i), sharding_.inputs[i], era_, id_));
          continue;
        }
        TSR_ASSIGN_OR_RETURN(const SlotRef own,
                             e_.obtain(input(i), at_home(sharding_.inputs[i], inputs_[i]), era_, id_));
        own_.push_back(own);
        moving_.push_back(i);
      }
      return {};
    }

    // Passes blocks to the rank before and takes those of the rank after, all in one exchange.
    void exchange(const Block& mine, const Block& theirs, const std::vector<int64_t>& my_bytes,
                  const std::vector<int64_t>& their_bytes) {
      const int32_t before = members_[static_cast<size_t>((position_ + ranks() - 1) % ranks())];
      const int32_t after = members_[static_cast<size_t>((position_ + 1) % ranks())];
      for (size_t b = 0; b < mine.size(); ++b)
        e_.out_.code.emplace_back(SendInst{before, my_bytes[b], mine[b], id_, e_.micro_batch_});
      for (size_t b = 0; b < theirs.size(); ++b)
        e_.out_.code.emplace_back(RecvInst{after, their_bytes[b], theirs[b], id_, e_.micro_batch_});
    }

    // Sends on the block that `step` works on and receives the next one.
    Block next_block(const Block& block, int32_t step) {
      Block next;
      std::vector<int64_t> mine, theirs;
      for (size_t m = 0; m < moving_.size(); ++m) {
        const size_t i = moving_[m];
        const ShardingSpec home = at_home(sharding_.inputs[i], inputs_[i]);
        mine.push_back(bytes(block_type(input(i), home, inputs_[i], owner(step))));
        const TensorType type = block_type(input(i), home, inputs_[i], owner(step + 1));
        theirs.push_back(bytes(type));
        next.push_back(slot("rotate", input(i), type));
      }
      exchange(block, next, mine, theirs);
      return next;
    }

    // The kernel on one block; the results with the factor are returned, the others merged.
    Result<Block> work(const Block& block, int32_t owner) {
      std::vector<FactorView> views = e_.views_of(id_);
      FactorView& view = views[factor_];
      const Factor& factor = sharding_.rule.factors[factor_];
      const int64_t span = inputs_[moving_[0]].span;
      view.unit = std::max<int64_t>(1, home_.unit / span);
      const Range range = split_range({0, factor.extent}, view.unit, ranks(), owner);
      view.begin[0] = range.begin;
      view.end[0] = range.end;
      if (e_.layout_.is_zigzag(home_)) e_.layout_.zigzag_view({home_.axes, view.unit}, view);
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

    // Only operands move: the own block first, while the next one is on its way.
    Status rotate_operands() {
      Block block = own_;
      for (int32_t step = 0; step < ranks(); ++step) {
        Block next;
        if (step + 1 < ranks()) next = next_block(block, step);
        TSR_RETURN_IF_ERROR(work(block, owner(step)).status());
        block = std::move(next);
      }
      publish_sums();
      return {};
    }

    // Results travel with their block: the own block comes last, when its sums arrive.
    Status rotate_results() {
      std::vector<size_t> with;  // outputs that have the factor
      for (size_t o = 0; o < outputs_.size(); ++o)
        if (outputs_[o].dim >= 0) with.push_back(o);
      const auto type_of = [&](size_t o, int32_t owner) {
        return block_type(output(o), at_home(sharding_.outputs[o], outputs_[o]), outputs_[o], owner);
      };
      Block block = own_, sums;
      for (int32_t step = 1; step <= ranks(); ++step) {
        const Block here = step == ranks() ? own_ : next_block(block, step - 1);
        TSR_ASSIGN_OR_RETURN(Block parts, work(here, owner(step)));
        if (!sums.empty())
          for (size_t w = 0; w < with.size(); ++w) {
            TSR_ASSIGN_OR_RETURN(parts[w],
                                 add(type_of(with[w], owner(step)), sums[w], parts[w], output(with[w])));
          }
        if (step == ranks()) {
          sums = std::move(parts);
          break;
        }
        Block arriving;
        std::vector<int64_t> mine, theirs;
        for (const size_t o : with) {
          mine.push_back(bytes(type_of(o, owner(step))));
          const TensorType type = type_of(o, owner(step + 1));
          theirs.push_back(bytes(type));
          arriving.push_back(slot("rotate", output(o), type));
        }
        exchange(parts, arriving, mine, theirs);
        sums = std::move(arriving);
        block = here;
      }
      for (size_t w = 0; w < with.size(); ++w)
        publish(with[w], at_home(sharding_.outputs[with[w]], outputs_[with[w]]), sums[w]);
      publish_sums();
      return {};
    }

    DimSharding home_;  // the axis alone, with the unit of the shards
    int32_t position_ = 0;
    std::vector<int32_t> members_;
    std::vector<SlotRef> fixed_;  // by input; null for those that move
    Block own_;
    std::vector<size_t> moving_;
  };
  return Rotation(*this, id, era).run();
}

}  // namespace tessera
