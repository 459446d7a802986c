// Slots that exist before a run: parameters, constants and
// state (shared with other entries), inputs and outputs.
#include <algorithm>

#include "graph/base/text.h"
#include "parallel/lowering/entry_emitter.h"

namespace tessera {

namespace {

SlotKind slot_kind(TensorKind kind) {
  constexpr SlotKind kKinds[] = {SlotKind::kInput, SlotKind::kParameter, SlotKind::kConstant,
                                 SlotKind::kState};
  return kKinds[static_cast<size_t>(kind)];
}

// One piece, or, for a box in zigzag order along a dim, two ranges of every row before that dim.
void add_pieces(const EntryLayout& layout, TensorId id, const ShardingSpec& spec, Box box, SlotRef at,
                std::vector<Piece>& all) {
  const TensorType& type = layout.tensor(id).type;
  for (size_t d = 0; d < box.size(); ++d) {
    if (!layout.is_zigzag(id, d, spec.dims[d])) continue;
    FactorView view;
    view.global_extent = type.shape[static_cast<int>(d)];
    view.begin[0] = box[d].begin;
    view.end[0] = box[d].end;
    layout.zigzag_view(spec.dims[d], view);
    if (view.range_count == 1) {
      box[d] = {view.begin[0], view.end[0]};
      continue;
    }
    int64_t inner = 1;
    for (size_t later = d + 1; later < box.size(); ++later) inner *= box[later].size();
    std::vector<Box> rows = {{}};
    for (size_t before = 0; before < d; ++before) {
      std::vector<Box> longer;
      for (const Box& row : rows)
        for (int64_t i = box[before].begin; i < box[before].end; ++i) {
          longer.push_back(row);
          longer.back().push_back({i, i + 1});
        }
      rows = std::move(longer);
    }
    for (Box& row : rows)
      for (int r = 0; r < 2; ++r) {
        Box part = row;
        part.push_back({view.begin[r], view.end[r]});
        part.insert(part.end(), box.begin() + static_cast<std::ptrdiff_t>(d) + 1, box.end());
        all.push_back({at, std::move(part)});
        at.offset += dtype_bytes(type.dtype, (view.end[r] - view.begin[r]) * inner);
      }
    return;
  }
  all.push_back({at, std::move(box)});
}

}  // namespace

Status EntryEmitter::add_persistent_slots() {
  const Graph& graph = layout_.graph;
  for (size_t t = 0; t < graph.tensors().size(); ++t) {
    const TensorId id{static_cast<uint32_t>(t)};
    const Tensor& tensor = graph.tensor(id);
    if (tensor.kind == TensorKind::kActivation || !layout_.lies_at(id, place_)) continue;
    if (tensor.kind != TensorKind::kInput) {
      TSR_RETURN_IF_ERROR(add_shared_slot(id));
      continue;
    }
    const int32_t copies = layout_.batch_dim[t] >= 0 ? layout_.micro_batches : 1;
    const SlotRef at =
        builder_.add_slot(tensor.name, SlotKind::kInput, copies * local_bytes(id, layout_.spec[t]), -1);
    persistent_[id] = at;
    out_.inputs.push_back({tensor.name, layout_.whole_type(id), pieces(id, layout_.spec[t], at)});
  }
  return {};
}

Status EntryEmitter::add_shared_slot(TensorId id) {
  const Tensor& tensor = layout_.tensor(id);
  const ShardingSpec& spec = layout_.spec[index(id)];
  bool zigzag = false;
  for (size_t d = 0; d < spec.dims.size(); ++d) zigzag |= layout_.is_zigzag(id, d, spec.dims[d]);
  if (const auto at = shared_.find(tensor.name); at != shared_.end()) {
    const SharedSlot& known = at->second;
    if (known.kind != tensor.kind || known.type != tensor.type)
      return Status(StatusCode::kInvalidArgument, format("'{}' is {} here and {} in an earlier entry",
                                                         tensor.name, tensor.type, known.type));
    if (!same_layout(known.spec, spec, tensor.type.shape, layout_.mesh))
      return Status(StatusCode::kInvalidArgument,
                    format("'{}' lies as {} here and as {} in an earlier entry; plan the entries alike",
                           tensor.name, to_text(spec, layout_.mesh), to_text(known.spec, layout_.mesh)));
    if (known.zigzag != zigzag)
      return Status(
          StatusCode::kInvalidArgument,
          format("'{}' lies zig-zag {}; plan the entries alike", tensor.name,
                 zigzag ? "here and in order in an earlier entry" : "in an earlier entry and in order here"));
    persistent_[id] = known.at;
    return {};
  }
  const SlotRef at = builder_.add_slot(tensor.name, slot_kind(tensor.kind), local_bytes(id, spec), -1,
                                       layout_.tier[index(id)]);
  persistent_[id] = at;
  shared_[tensor.name] = {tensor.type, spec, tensor.kind, at, zigzag};
  RankProgram& program = builder_.program;
  auto& bindings = tensor.kind == TensorKind::kParameter ? program.parameters
                   : tensor.kind == TensorKind::kState   ? program.states
                                                         : program.constants;
  bindings.push_back({tensor.name, tensor.type, pieces(id, spec, at)});
  return {};
}

void EntryEmitter::add_output_slots() {
  const auto outputs = layout_.graph.outputs();
  output_written_.assign(outputs.size(), false);
  for (size_t o = 0; o < outputs.size(); ++o) {
    const TensorId id = outputs[o].tensor;
    if (layout_.lies_on[index(id)][0] != place_) {  // another stage's
      output_slots_.push_back({});
      output_written_[o] = true;
      continue;
    }
    const int32_t copies = layout_.batch_dim[index(id)] >= 0 ? layout_.micro_batches : 1;
    const SlotRef at = builder_.add_slot(outputs[o].name, SlotKind::kOutput,
                                         copies * local_bytes(id, layout_.outputs[o]), -1);
    output_slots_.push_back(at);
    out_.outputs.push_back({outputs[o].name, layout_.whole_type(id), pieces(id, layout_.outputs[o], at)});
  }
}

std::vector<Piece> EntryEmitter::pieces(TensorId id, const ShardingSpec& spec, SlotRef at) const {
  const Shape& shape = layout_.tensor(id).type.shape;
  const Box box = local_box(shape, spec, layout_.mesh, builder_.coordinates());
  const int dim = layout_.batch_dim[index(id)];
  std::vector<Piece> all;
  const int32_t copies = dim < 0 ? 1 : layout_.micro_batches;
  for (int32_t j = 0; j < copies; ++j) {
    Box part = box;
    if (dim >= 0) {
      part[static_cast<size_t>(dim)].begin += j * shape[dim];
      part[static_cast<size_t>(dim)].end += j * shape[dim];
    }
    add_pieces(layout_, id, spec, std::move(part), {at.slot, at.offset + j * local_bytes(id, spec)}, all);
  }
  return all;
}

int64_t EntryEmitter::local_bytes(TensorId id, const ShardingSpec& spec) const {
  return bytes(builder_.local_type(layout_.tensor(id).type, spec));
}

}  // namespace tessera
