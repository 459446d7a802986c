#include "runtime/session_values.h"

#include <algorithm>
#include <functional>
#include <optional>

#include "graph/base/nearest_hint.h"
#include "graph/base/text.h"
#include "runtime/box_copy.h"
#include "runtime/host_services.h"
#include "runtime/message.h"

namespace tessera {

namespace {

void add_binding(std::vector<SessionTensor>& list, const Binding& binding, SlotKind kind, size_t at) {
  auto found = std::ranges::find(list, binding.name, &SessionTensor::name);
  if (found == list.end())
    found = list.insert(list.end(), SessionTensor{binding.name, binding.global, kind, {}, false});
  found->bindings.emplace_back(at, &binding);
}

Status unknown(std::string_view what, std::string_view name, std::span<const std::string> candidates) {
  return Status(StatusCode::kNotFound, format("{} '{}' does not exist{}", what, name,
                                              nearest_hint(name, candidates)));
}

std::vector<std::string> names_of(const std::vector<SessionTensor>& list) {
  std::vector<std::string> names;
  for (const SessionTensor& placed : list) names.push_back(placed.name);
  return names;
}

Result<SessionTensor*> find_among(std::vector<SessionTensor>& list, std::string_view what,
                                  const std::string& entry, std::string_view name) {
  for (SessionTensor& placed : list)
    if (placed.name == name) return &placed;
  return unknown(format("{} of entry '{}'", what, entry), name, names_of(list));
}

// The piece's part of rows [first, first + count), its box within these rows; nullopt: none.
std::optional<Piece> rows_of(const Piece& piece, DType dtype, int64_t first, int64_t count) {
  const Range held = piece.box[0];
  const int64_t begin = std::max(first, held.begin), end = std::min(first + count, held.end);
  if (begin >= end) return std::nullopt;
  Piece part = piece;
  part.box[0] = {begin - first, end - first};
  part.at.offset += dtype_bytes(dtype, box_elements(part.box)) / (end - begin) * (begin - held.begin);
  return part;
}

}  // namespace

SessionValues::SessionValues(Executable::Impl& executable, const RankExecutors& ranks, SessionComms& comms,
                             SessionMemory& memory)
    : executable_(executable), program_(executable.program), ranks_(ranks), comms_(comms), memory_(memory) {
  for (size_t index = 0; index < program_.ranks.size(); ++index) {
    const RankProgram& part = program_.ranks[index];
    const std::pair<const std::vector<Binding>*, SlotKind> lists[] = {
        {&part.parameters, SlotKind::kParameter},
        {&part.states, SlotKind::kState},
        {&part.constants, SlotKind::kConstant}};
    for (const auto& [list, kind] : lists)
      for (const Binding& binding : *list) {
        const auto [at, is_new] = tensor_index_.emplace(binding.name, tensors_.size());
        if (is_new)
          tensors_.push_back(SessionTensor{binding.name, binding.global, kind, {}, kind == SlotKind::kState});
        tensors_[at->second].bindings.emplace_back(index, &binding);
      }
    for (size_t number = 0; number < part.entries.size(); ++number) {
      const EntryPoint& point = part.entries[number];
      auto entry = std::ranges::find(entries_, point.name, &SessionEntry::name);
      if (entry == entries_.end())
        entry = entries_.insert(
            entries_.end(),
            SessionEntry{point.name, std::vector<int32_t>(program_.ranks.size(), -1), {}, {}});
      entry->index[index] = static_cast<int32_t>(number);
      for (const Binding& input : point.inputs) add_binding(entry->inputs, input, SlotKind::kInput, index);
      for (const Binding& output : point.outputs)
        add_binding(entry->outputs, output, SlotKind::kOutput, index);
    }
  }
  unwritten_ = static_cast<size_t>(std::ranges::count(tensors_, false, &SessionTensor::written));
}

namespace {

void put_tensors(MessageWriter& message, const std::vector<SessionTensor>& tensors) {
  message.put(std::ssize(tensors));
  for (const SessionTensor& tensor : tensors) {
    message.put(static_cast<int64_t>(tensor.kind));
    message.put(tensor.name);
    message.put(tensor.global);
  }
}

// Calls `add` with each tensor, without its bindings.
Status take_tensors(MessageReader& message, const std::function<void(SessionTensor)>& add) {
  TSR_ASSIGN_OR_RETURN(const int64_t count, message.number());
  for (int64_t i = 0; i < count; ++i) {
    SessionTensor tensor;
    TSR_ASSIGN_OR_RETURN(const int64_t kind, message.number());
    tensor.kind = static_cast<SlotKind>(kind);
    TSR_ASSIGN_OR_RETURN(tensor.name, message.text());
    TSR_ASSIGN_OR_RETURN(tensor.global, message.type());
    tensor.written = tensor.kind == SlotKind::kState || tensor.kind == SlotKind::kParameter || tensor.kind == SlotKind::kConstant;
    add(std::move(tensor));
  }
  return {};
}

void add_if_new(std::vector<SessionTensor>& list, SessionTensor tensor) {
  if (std::ranges::find(list, tensor.name, &SessionTensor::name) == list.end()) list.push_back(std::move(tensor));
}

}  // namespace

Status SessionValues::learn_names(Channel& channel) {
  MessageWriter mine;
  put_tensors(mine, tensors_);
  mine.put(std::ssize(entries_));
  for (const SessionEntry& entry : entries_) {
    mine.put(entry.name);
    put_tensors(mine, entry.inputs);
    put_tensors(mine, entry.outputs);
  }
  for (int32_t process = 0; process < channel.transport().processes(); ++process) {
    TSR_ASSIGN_OR_RETURN(const std::string text, channel.broadcast_text(process, mine.text()));
    if (process == channel.transport().process()) continue;
    MessageReader theirs(text);
    TSR_RETURN_IF_ERROR(take_tensors(theirs, [&](SessionTensor tensor) {
      if (tensor_index_.emplace(tensor.name, tensors_.size()).second) tensors_.push_back(std::move(tensor));
    }));
    TSR_ASSIGN_OR_RETURN(const int64_t entries, theirs.number());
    for (int64_t i = 0; i < entries; ++i) {
      TSR_ASSIGN_OR_RETURN(const std::string_view name, theirs.text());
      auto entry = std::ranges::find(entries_, name, &SessionEntry::name);
      if (entry == entries_.end())
        entry = entries_.insert(entries_.end(), SessionEntry{std::string(name), std::vector<int32_t>(program_.ranks.size(), -1), {}, {}});
      TSR_RETURN_IF_ERROR(take_tensors(theirs, [&](SessionTensor tensor) { add_if_new(entry->inputs, std::move(tensor)); }));
      TSR_RETURN_IF_ERROR(take_tensors(theirs, [&](SessionTensor tensor) { add_if_new(entry->outputs, std::move(tensor)); }));
    }
  }
  owners_.clear();  // tensors have moved
  return {};
}

std::map<std::string, TensorType> SessionValues::types(SlotKind kind) const {
  std::map<std::string, TensorType> types;
  for (const SessionTensor& tensor : tensors_)
    if (tensor.kind == kind) types.emplace(tensor.name, tensor.global);
  return types;
}

const SessionEntry* SessionValues::look_up_entry(std::string_view name) const {
  const auto found = std::ranges::find(entries_, name, &SessionEntry::name);
  return found != entries_.end() ? &*found : nullptr;
}

Result<SessionEntry*> SessionValues::find_entry(std::string_view name) {
  for (SessionEntry& entry : entries_)
    if (entry.name == name) return &entry;
  std::vector<std::string> names;
  for (const SessionEntry& entry : entries_) names.push_back(entry.name);
  return unknown("entry point", name, names);
}

Result<SessionTensor*> SessionValues::find_tensor(std::string_view name) {
  const auto found = tensor_index_.find(std::string(name));
  if (found == tensor_index_.end()) return unknown("tensor", name, names_of(tensors_));
  return &tensors_[found->second];
}

Result<SessionTensor*> SessionValues::find_input(std::string_view entry, std::string_view name) {
  TSR_ASSIGN_OR_RETURN(SessionEntry * found, find_entry(entry));
  return find_among(found->inputs, "input", found->name, name);
}

Result<SessionTensor*> SessionValues::find_output(std::string_view entry, std::string_view name) {
  TSR_ASSIGN_OR_RETURN(SessionEntry * found, find_entry(entry));
  TSR_ASSIGN_OR_RETURN(SessionTensor * output, find_among(found->outputs, "output", found->name, name));
  if (!found->ran)
    return Status(StatusCode::kFailedPrecondition,
                  format("output '{}' holds nothing yet: entry '{}' has not run", name, found->name));
  return output;
}

Status SessionValues::check_written(const SessionEntry& entry) const {
  if (unwritten_ > 0) {
    const auto missing = std::ranges::find(tensors_, false, &SessionTensor::written);
    return Status(
        StatusCode::kFailedPrecondition,
        format("{} '{}' has not been written ({} in all); write every parameter and constant before a run",
               missing->kind == SlotKind::kConstant ? "constant" : "parameter", missing->name,
               static_cast<uint64_t>(unwritten_)));
  }
  for (const SessionTensor& input : entry.inputs)
    if (!input.written)
      return Status(StatusCode::kFailedPrecondition,
                    format("input '{}' of entry '{}' has never been fed", input.name, entry.name));
  return {};
}

Status SessionValues::synchronize() {
  for (const auto& rank : ranks_)
    TSR_RETURN_IF_ERROR(take_error(executable_.api().stream_synchronize(rank->stream())));
  return {};
}

bool SessionValues::is_shared(const SessionTensor& tensor) const {
  return std::ranges::all_of(tensor.bindings, [this](const auto& at) {
    return std::ranges::all_of(at.second->pieces, [&](const Piece& piece) {
      return ranks_[at.first]->memory().is_shared(piece.at);
    });
  });
}

void SessionValues::note_shared() {
  for (SessionTensor& tensor : tensors_) {
    if (tensor.kind != SlotKind::kParameter || tensor.written || !is_shared(tensor)) continue;
    tensor.written = true;
    --unwritten_;
  }
}

Status SessionValues::copy_in(SessionTensor& placed, const HostTensor& value) {
  if (value.type != placed.global)
    return Status(StatusCode::kInvalidArgument, format("tensor '{}' is {}, the program wants {}", placed.name,
                                                       to_text(value.type), to_text(placed.global)));
  if (value.data.size() != static_cast<size_t>(bytes(placed.global)))
    return Status(StatusCode::kInvalidArgument,
                  format("tensor '{}' needs {} bytes, {} were given", placed.name, bytes(placed.global),
                         static_cast<uint64_t>(value.data.size())));
  for (const auto& [index, binding] : placed.bindings) {
    RankExecutor& executor = *ranks_[index];
    for (const Piece& piece : binding->pieces) {
      if (executor.memory().is_shared(piece.at)) {
        const auto* shared = static_cast<const std::byte*>(executor.memory().address(piece.at));
        if (equals_box(value.data.data(), placed.global, piece.box, shared)) continue;
        TSR_RETURN_IF_ERROR(executor.unshare(piece.at.slot));
      }
      TSR_RETURN_IF_ERROR(
          executor.memory().write(executor.stream(), value.data.data(), placed.global, piece));
      memory_.note_written(index, piece.at, dtype_bytes(placed.global.dtype, box_elements(piece.box)));
    }
  }
  if (!placed.written && (placed.kind == SlotKind::kParameter || placed.kind == SlotKind::kConstant))
    --unwritten_;
  placed.written = true;
  return synchronize();
}

// Whether rows of it can be written apart.
bool SessionValues::has_rows(const SessionTensor& placed) const {
  const bool is_own = placed.kind == SlotKind::kParameter && placed.written && !is_shared(placed);
  return (placed.kind == SlotKind::kState || is_own) && placed.global.shape.rank() > 0;
}

Status SessionValues::copy_rows_in(const SessionTensor& placed, int64_t first, const HostTensor& value) {
  const TensorType& global = placed.global;
  if (!has_rows(placed))
    return Status(
        StatusCode::kInvalidArgument,
        format("rows of '{}' ({}) are written, wanted a state, or a written parameter of its own, with rows", placed.name, to_text(global)));
  const int64_t count = value.type.shape.rank() > 0 ? value.type.shape[0] : 0;
  TensorType wanted = global;
  wanted.shape.set(0, count);
  if (value.type != wanted || value.data.size() != static_cast<size_t>(bytes(wanted)) || first < 0 ||
      first + count > global.shape[0])
    return Status(
        StatusCode::kInvalidArgument,
        format("rows {} to {} of '{}' are {} ({} bytes), the state is {}", first, first + count - 1,
               placed.name, to_text(value.type), static_cast<uint64_t>(value.data.size()), to_text(global)));
  for (const auto& [index, binding] : placed.bindings) {
    RankExecutor& executor = *ranks_[index];
    for (const Piece& piece : binding->pieces) {
      const std::optional<Piece> part = rows_of(piece, global.dtype, first, count);
      if (!part) continue;
      TSR_RETURN_IF_ERROR(executor.memory().write(executor.stream(), value.data.data(), value.type, *part));
      memory_.note_written(index, part->at, dtype_bytes(global.dtype, box_elements(part->box)));
    }
  }
  return synchronize();
}

Status SessionValues::copy_boxes_out(const SessionTensor& placed, int64_t first, const TensorType& rows,
                                     std::span<std::byte> out) {
  if (Channel* channel = comms_.channel(); channel != nullptr) return copy_boxes_of_all(placed, first, rows, out, *channel);
  const bool is_whole = rows.shape == placed.global.shape;
  int64_t covered = 0;
  for (size_t at = 0; at < placed.bindings.size(); ++at) {
    const auto& [index, binding] = placed.bindings[at];
    for (const Piece& piece : binding->pieces) {
      // The lowest rank that lists a box owns it.
      bool is_owned = false;
      for (size_t lower = 0; lower < at && !is_owned; ++lower)
        is_owned = std::ranges::find(placed.bindings[lower].second->pieces, piece.box, &Piece::box) !=
                   placed.bindings[lower].second->pieces.end();
      if (is_owned) continue;
      const std::optional<Piece> cut = is_whole ? std::nullopt : rows_of(piece, rows.dtype, first, rows.shape[0]);
      if (!is_whole && !cut) continue;
      const Piece& part = is_whole ? piece : *cut;  // no copy: reading a whole tensor allocates nothing
      RankExecutor& executor = *ranks_[index];
      TSR_RETURN_IF_ERROR(executor.memory().read(executor.stream(), rows, part, out.data()));
      covered += box_elements(part.box);
    }
  }
  if (covered != rows.shape.elements())
    return Status(StatusCode::kInternal, format("tensor '{}': the ranks hold {} of its {} elements",
                                                placed.name, covered, rows.shape.elements()));
  return synchronize();
}

Result<const std::vector<BoxOwner>*> SessionValues::owners_of(const SessionTensor& placed, Channel& channel) {
  const auto known = owners_.find(&placed);
  if (known != owners_.end()) return &known->second;
  std::vector<std::pair<int32_t, Box>> held;
  for (const auto& [index, binding] : placed.bindings)
    for (const Piece& piece : binding->pieces) held.emplace_back(program_.rank_of(index), piece.box);
  TSR_ASSIGN_OR_RETURN(std::vector<BoxOwner> found, find_box_owners(channel, held));
  return &owners_.emplace(&placed, std::move(found)).first->second;
}

Status SessionValues::copy_box_out(const SessionTensor& placed, const Box& box, int64_t first, const TensorType& rows,
                                   std::byte* out) {
  for (const auto& [index, binding] : placed.bindings) {
    const auto piece = std::ranges::find(binding->pieces, box, &Piece::box);
    if (piece == binding->pieces.end()) continue;
    const bool is_whole = rows.shape == placed.global.shape;
    const std::optional<Piece> part = is_whole ? *piece : rows_of(*piece, rows.dtype, first, rows.shape[0]);
    RankExecutor& executor = *ranks_[index];
    if (part) TSR_RETURN_IF_ERROR(executor.memory().read(executor.stream(), rows, *part, out));
    return {};
  }
  return Status(StatusCode::kInternal, format("tensor '{}': no rank here holds the box that it owns", placed.name));
}

// A box that some process lacks goes from its owner to all, as it lies in the copy.
Status SessionValues::copy_boxes_of_all(const SessionTensor& placed, int64_t first, const TensorType& rows,
                                        std::span<std::byte> out, Channel& channel) {
  TSR_ASSIGN_OR_RETURN(const std::vector<BoxOwner>* owners, owners_of(placed, channel));
  int64_t covered = 0;
  for (const BoxOwner& owner : *owners) {
    const Piece whole{{}, owner.box};
    const bool is_whole = rows.shape == placed.global.shape;
    const std::optional<Piece> part = is_whole ? whole : rows_of(whole, rows.dtype, first, rows.shape[0]);
    if (!part) continue;
    const int64_t elements = box_elements(part->box);
    covered += elements;
    const bool is_mine = program_.rank_set().has(owner.rank);
    if (owner.is_everywhere || is_mine) TSR_RETURN_IF_ERROR(copy_box_out(placed, owner.box, first, rows, out.data()));
    if (owner.is_everywhere) continue;
    TSR_RETURN_IF_ERROR(synchronize());
    std::vector<std::byte> moved(static_cast<size_t>(dtype_bytes(rows.dtype, elements)));
    if (is_mine) copy_box(out.data(), rows, part->box, moved.data());
    TSR_RETURN_IF_ERROR(channel.broadcast(executable_.devices->impl().process_of(owner.rank), moved));
    if (!is_mine) put_box(moved.data(), rows, part->box, out.data());
  }
  if (covered != rows.shape.elements())
    return Status(StatusCode::kInternal, format("tensor '{}': the ranks hold {} of its {} elements",
                                                placed.name, covered, rows.shape.elements()));
  return synchronize();
}

Status SessionValues::copy_rows_out(const SessionTensor& placed, int64_t first, std::span<std::byte> out) {
  TensorType rows = placed.global;
  if (!has_rows(placed))
    return Status(StatusCode::kInvalidArgument, format("rows of '{}' ({}) are read, wanted a state, or a written parameter of its own, with rows",
                                                       placed.name, to_text(rows)));
  rows.shape.set(0, 1);
  const int64_t row_bytes = bytes(rows);
  rows.shape.set(0, row_bytes > 0 ? std::ssize(out) / row_bytes : 0);
  if (std::ssize(out) != bytes(rows) || first < 0 || first + rows.shape[0] > placed.global.shape[0])
    return Status(StatusCode::kInvalidArgument,
                  format("{} bytes from row {} on are read of '{}', the state is {}, a row has {} bytes",
                         static_cast<uint64_t>(out.size()), first, placed.name, to_text(placed.global), row_bytes));
  return copy_boxes_out(placed, first, rows, out);
}

Status SessionValues::copy_out(const SessionTensor& placed, std::span<std::byte> out) {
  if (out.size() != static_cast<size_t>(bytes(placed.global)))
    return Status(StatusCode::kInvalidArgument,
                  format("tensor '{}' is {} ({} bytes), the buffer has {} bytes", placed.name,
                         to_text(placed.global), bytes(placed.global), static_cast<uint64_t>(out.size())));
  return copy_boxes_out(placed, 0, placed.global, out);
}

Result<HostTensor> SessionValues::read(const SessionTensor& tensor) {
  std::span<std::byte> writable;
  HostTensor value = HostTensor::zeros(tensor.global, &writable);
  TSR_RETURN_IF_ERROR(copy_out(tensor, writable));
  return value;
}

Status SessionValues::zero_states() {
  for (const SessionTensor& placed : tensors_) {
    if (placed.kind != SlotKind::kState) continue;
    for (const auto& [index, binding] : placed.bindings) {
      RankExecutor& executor = *ranks_[index];
      for (const Piece& piece : binding->pieces) {
        const int64_t count = dtype_bytes(placed.global.dtype, box_elements(piece.box));
        TSR_RETURN_IF_ERROR(executor.memory().zero(executor.stream(), piece.at, count));
        memory_.note_written(index, piece.at, count);
      }
    }
  }
  return synchronize();
}

}  // namespace tessera
