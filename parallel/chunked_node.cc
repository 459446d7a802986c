// Nodes that run in slices of one factor (ALGEBRA rule 7). Per slice the operands that have the factor are
// cut and brought to where they are wanted, so that only a slice of what is gathered is there at a time;
// results that have the factor are laid side by side, results that lack it are added up (or merged, as the op
// says).
//
// Rotating: the slices are what the ranks of an axis hold. Each rank starts with its own and passes on what
// it has, so that every slice visits every rank (ring attention, Liu et al., 2023). Results that have the
// factor travel with their slice as running sums and end where the slice is at home.
#include <algorithm>

#include "graph/base/text.h"
#include "parallel/entry_emitter.h"
#include "parallel/units.h"

namespace tessera {

// What both kinds share: where the factor sits in each operand, and how partial results are put together.
class EntryEmitter::ChunkedNode {
 public:
  ChunkedNode(EntryEmitter& emitter, NodeId id, Era era)
      : e_(emitter),
        id_(id),
        era_(era),
        node_(emitter.layout_.graph.node(id)),
        plan_(emitter.layout_.nodes_plan(id)),
        sharding_(emitter.layout_.nodes[index(id)]) {}

 protected:
  struct At {
    int dim = -1;  // of the operand; -1: it lacks the factor
    int64_t span = 1;
  };

  Status locate() {
    const Factor* factor = sharding_.rule.find(plan_.chunk_factor);
    if (factor == nullptr || node_.op->is_view || plan_.tier != Tier::kDevice)
      return refuse("it has no such factor to be cut, or does not run on the device");
    factor_ = static_cast<size_t>(factor - sharding_.rule.factors.data());
    if (factor->kind == FactorKind::kReduce && factor->reduce != ReduceKind::kSum)
      return refuse("a maximum is not put together from slices");
    for (const auto& dims : sharding_.rule.inputs) {
      TSR_ASSIGN_OR_RETURN(const At at, find(dims));
      inputs_.push_back(at);
    }
    for (const auto& dims : sharding_.rule.outputs) {
      TSR_ASSIGN_OR_RETURN(const At at, find(dims));
      outputs_.push_back(at);
    }
    return {};
  }

  Status refuse(std::string_view why) const {
    return Status(StatusCode::kUnsupported,
                  format("{}: cannot run in {} slices of factor '{}': {}", describe(e_.layout_.graph, id_),
                         plan_.chunks, plan_.chunk_factor, why));
  }

  TensorId input(size_t i) const { return node_.inputs[i]; }
  TensorId output(size_t o) const { return node_.outputs[o]; }
  const TensorType& type(TensorId id) const { return e_.layout_.tensor(id).type; }
  const std::string& name(TensorId id) const { return e_.layout_.tensor(id).name; }
  Cut cut(const At& at, Range range) const {
    return at.dim < 0 ? Cut{} : Cut{at.dim, {range.begin * at.span, range.end * at.span}};
  }
  SlotRef slot(std::string what, TensorId of, const TensorType& local) {
    return e_.builder_.add_slot(format("{}({})", what, name(of)), SlotKind::kTransient, bytes(local),
                                e_.entry_);
  }

  // Adds what one slice gave to outputs without the factor. `parts` in the order of those outputs.
  Status merge(const std::vector<SlotRef>& parts) {
    std::vector<TensorType> types;
    std::vector<TensorId> ids;
    for (size_t o = 0; o < outputs_.size(); ++o)
      if (outputs_[o].dim < 0) {
        types.push_back(e_.builder_.local_type(type(output(o)), sharding_.outputs[o]));
        ids.push_back(output(o));
      }
    if (sums_.empty()) {
      sums_ = parts;
      return {};
    }
    if (!node_.op->chunk_merge.empty()) {
      std::vector<TensorType> both = types;
      both.insert(both.end(), types.begin(), types.end());
      std::vector<SlotRef> operands = sums_;
      operands.insert(operands.end(), parts.begin(), parts.end());
      TSR_ASSIGN_OR_RETURN(sums_, e_.launch_local(node_.op->chunk_merge, both, types, operands, id_,
                                                  name(ids[0]), Tier::kDevice));
      return {};
    }
    for (size_t s = 0; s < sums_.size(); ++s) {
      TSR_ASSIGN_OR_RETURN(sums_[s], add(types[s], sums_[s], parts[s], ids[s]));
    }
    return {};
  }

  Result<SlotRef> add(const TensorType& local, SlotRef a, SlotRef b, TensorId of) {
    TSR_ASSIGN_OR_RETURN(
        const std::vector<SlotRef> sum,
        e_.launch_local("add", {local, local}, {local}, {a, b}, id_, name(of), Tier::kDevice));
    return sum[0];
  }

  void publish_sums() {
    size_t s = 0;
    for (size_t o = 0; o < outputs_.size(); ++o)
      if (outputs_[o].dim < 0) publish(o, sharding_.outputs[o], sums_[s++]);
  }
  void publish(size_t o, const ShardingSpec& spec, SlotRef at) {
    e_.values()[index(output(o))].push_back({spec, at, era_, true});
  }

  EntryEmitter& e_;
  const NodeId id_;
  const Era era_;
  const Node& node_;
  const NodePlan& plan_;
  const NodeSharding& sharding_;
  size_t factor_ = 0;
  std::vector<At> inputs_, outputs_;
  std::vector<SlotRef> sums_;  // of outputs that lack the factor

 private:
  Result<At> find(const ShardingRule::OperandDims& dims) const {
    for (size_t d = 0; d < dims.size(); ++d) {
      if (dims[d].find(plan_.chunk_factor) == std::string::npos) continue;
      const MajorFactor major = major_factor(sharding_.rule, dims[d]);
      if (major.name != plan_.chunk_factor) return refuse("it is the minor part of a dim");
      return At{static_cast<int>(d), major.span};
    }
    return At{};
  }
};

Status EntryEmitter::emit_chunks(NodeId id, Era era) {
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
    // Results that have the factor go straight to where they will be wanted, slice by slice, so that what is
    // reduced is never whole on one rank: a gradient as it is stored, an addend as its readers want it.
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
      if (e_.layout_.crossing[index(id)] && e_.layout_.micro_batches > 1) {
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
      // Only what reduces: a gather would make more of it, not less.
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
        const Cut cut = this->cut(inputs_[i], range);
        in_types.push_back(e_.builder_.local_type(type(input(i)), sharding_.inputs[i], cut));
        if (!reads_input(node_, i)) continue;
        if (cut.dim < 0) {
          TSR_ASSIGN_OR_RETURN(ins[i], e_.obtain(input(i), sharding_.inputs[i], era_, id_));
        } else {
          TSR_ASSIGN_OR_RETURN(ins[i], e_.obtain_slice(input(i), sharding_.inputs[i], cut, era_, id_));
        }
      }
      for (size_t o = 0; o < outputs_.size(); ++o) {
        out_types.push_back(
            e_.builder_.local_type(type(output(o)), sharding_.outputs[o], cut(outputs_[o], range)));
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

    // Lays a slice of output `o` into the whole.
    Status place(size_t o, Range range, SlotRef at) {
      const Cut cut = this->cut(outputs_[o], range);
      const TensorType& global = type(output(o));
      TSR_ASSIGN_OR_RETURN(
          const ReshardPath path,
          e_.layout_.resharder->path(sharding_.outputs[o], target_[o], global.shape, global.dtype));
      const RankBuilder::MoveContext context{name(output(o)), id_, e_.micro_batch_, e_.entry_, cut};
      for (const Move& move : path.moves)
        at = e_.builder_.emit_move(move, global, at, nullptr, context, e_.out_.code);
      const TensorType part = e_.builder_.local_type(global, target_[o], cut);
      const TensorType whole = e_.builder_.local_type(global, target_[o]);
      const int64_t first = e_.builder_.local_dim(global, target_[o], cut.dim, cut).begin -
                            e_.builder_.local_dim(global, target_[o], cut.dim).begin;
      e_.copy_window(part, at, 0, whole, whole_[o], first, cut.dim, part.shape[cut.dim], id_);
      return {};
    }

    std::vector<ShardingSpec> target_;
    std::vector<SlotRef> whole_;
  };
  return Chunks(*this, id, era).run();
}

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
