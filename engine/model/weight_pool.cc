#include "engine/model/weight_pool.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <set>
#include <utility>

#include "engine/base/ordered_tasks.h"
#include "engine/model/shared_model.h"
#include "engine/model/stored_values.h"
#include "graph/analysis/read_only_parameters.h"
#include "graph/base/text.h"
#include "runtime/arranged_weights.h"
#include "runtime/box_copy.h"

namespace tessera {

namespace {

// Place: one slot with a part of a parameter, on one rank.
struct Place {
  size_t rank = 0;  // index of Program::ranks
  int32_t slot = 0;
  std::vector<Piece> pieces;
};

// Wanted: the slots of one parameter.
struct Wanted {
  std::string name;
  TensorType type;
  std::vector<Place> places;
};

// The read-only slots, by parameter name.
std::map<std::string, Wanted> find_wanted(const Program& program) {
  std::map<std::string, Wanted> wanted;
  for (size_t r = 0; r < program.ranks.size(); ++r) {
    const RankProgram& rank = program.ranks[r];
    const std::vector<int32_t> slots = find_read_only_parameters(rank).slots;
    const std::set<int32_t> read_only(slots.begin(), slots.end());
    for (const Binding& binding : rank.parameters)
      for (const Piece& piece : binding.pieces) {
        if (!read_only.contains(piece.at.slot)) continue;
        Wanted& it = wanted.try_emplace(binding.name, Wanted{binding.name, binding.global, {}}).first->second;
        const auto same = [&](const Place& place) {
          return place.rank == r && place.slot == piece.at.slot;
        };
        auto place = std::ranges::find_if(it.places, same);
        if (place == it.places.end())
          place = it.places.insert(it.places.end(), Place{r, piece.at.slot, {}});
        place->pieces.push_back(piece);
      }
  }
  return wanted;
}

// Part: a parameter's part in a slot.
struct Part {
  size_t rank = 0;  // index of Program::ranks
  int32_t slot = 0;
  SharedWeight weight;
};
using Parts = std::vector<Part>;

// The slot's part of a whole value: in place if the layout agrees, else a
// copy. A value without an owner belongs to the caller and is always copied.
Result<SharedWeight> cut_part(const HostTensor& whole, const Place& place, int64_t bytes,
                              const ArrangedOperand& arranged, const std::shared_ptr<DeviceSet>& devices) {
  std::optional<int64_t> in_place_offset;
  if (const Piece& only = place.pieces[0]; place.pieces.size() == 1 && only.at.offset == 0 &&
                                           dtype_bytes(whole.type.dtype, box_elements(only.box)) == bytes)
    in_place_offset = find_in_place(whole.type, only.box);
  const bool is_arranged = arranged.kernel != nullptr;
  if (in_place_offset && whole.keep_alive && !is_arranged)
    return SharedWeight{whole.data.data() + *in_place_offset, whole.keep_alive};
  TSR_ASSIGN_OR_RETURN(const std::shared_ptr<std::byte> copy, allocate_weight(devices, place.rank, bytes));
  if (in_place_offset && is_arranged) {
    TSR_RETURN_IF_ERROR(arrange(*devices, arranged, whole.data.data() + *in_place_offset, copy.get()));
    return SharedWeight{copy.get(), copy, true};
  }
  std::vector<std::byte> staging(static_cast<size_t>(is_arranged ? bytes : 0));
  for (const Piece& piece : place.pieces)
    copy_box(whole.data.data(), whole.type, piece.box,
             (is_arranged ? staging.data() : copy.get()) + piece.at.offset);
  if (is_arranged) TSR_RETURN_IF_ERROR(arrange(*devices, arranged, staging.data(), copy.get()));
  return SharedWeight{copy.get(), copy, true};
}

std::string key_of(const Wanted& wanted, int64_t version, const Place& place, bool is_arranged) {
  std::string key =
      format("{}@{} {}{}", wanted.name, version, to_text(wanted.type), is_arranged ? " arranged" : "");
  for (const Piece& piece : place.pieces) {
    key += format(" {}", piece.at.offset);
    for (const Range& range : piece.box) key += format(":{}-{}", range.begin, range.end);
  }
  return key;
}

}  // namespace

std::map<std::string, int64_t> find_weight_parts(const Program& program) {
  std::vector<std::vector<ArrangedOperand>> arranged;
  for (const RankProgram& rank : program.ranks) arranged.push_back(find_arranged(rank));
  std::map<std::string, int64_t> parts;
  for (const auto& [name, wanted] : find_wanted(program))
    for (const Place& place : wanted.places) {
      const auto slot = static_cast<size_t>(place.slot);
      parts.emplace(key_of(wanted, 0, place, arranged[place.rank][slot].kernel != nullptr),
                    program.ranks[place.rank].slots[slot].bytes);
    }
  return parts;
}

// TakeLock: held during take(); one take() runs at a time, so that a shared part is made once. Waiting can
// be cancelled.
class WeightPool::TakeLock {
 public:
  explicit TakeLock(WeightPool& pool) : pool_(pool) {
    std::unique_lock lock(pool_.mutex_);
    while (pool_.taking_) {
      cancellation_point();
      pool_.changed_.wait_for(lock, std::chrono::milliseconds(20));
    }
    pool_.taking_ = true;
  }
  ~TakeLock() {
    const std::lock_guard lock(pool_.mutex_);
    pool_.taking_ = false;
    pool_.changed_.notify_all();
  }
  TakeLock(const TakeLock&) = delete;
  TakeLock& operator=(const TakeLock&) = delete;

 private:
  WeightPool& pool_;
};

SharedWeight WeightPool::find(const std::string& key) {
  const std::lock_guard lock(mutex_);
  const auto found = held_.find(key);
  if (found == held_.end()) return {};
  std::shared_ptr<const void> owner = found->second.owner.lock();
  return owner ? SharedWeight{found->second.data, std::move(owner), found->second.is_copy} : SharedWeight{};
}

void WeightPool::keep(const std::string& key, const SharedWeight& weight) {
  const std::lock_guard lock(mutex_);
  std::erase_if(held_, [](const auto& it) { return it.second.owner.expired(); });
  held_.insert_or_assign(key, Held{weight.data, weight.owner, weight.is_copy});
}

Result<std::shared_ptr<const SharedWeights>> WeightPool::take(const std::shared_ptr<SharedModel>& model,
                                                              const std::shared_ptr<DeviceSet>& devices,
                                                              const Executable& executable, uint64_t seed,
                                                              size_t max_threads) {
  if (!SharedWeights::is_supported(executable)) return std::shared_ptr<const SharedWeights>();
  const Program& program = executable.program();
  const StoredValues values(*model, program, seed);
  const std::map<std::string, Wanted> wanted = find_wanted(program);
  std::vector<const Wanted*> weights;
  for (const auto& [name, weight] : wanted) weights.push_back(&weight);
  std::vector<std::vector<ArrangedOperand>> arranged;
  for (const RankProgram& rank : program.ranks) arranged.push_back(find_arranged(rank));
  auto taken = std::make_shared<SharedWeights>(program);
  const TakeLock lock(*this);

  const auto make = [&](size_t at) -> Result<Parts> {
    const Wanted& it = *weights[at];
    TSR_ASSIGN_OR_RETURN(const std::optional<SharedModel::Value> stored_value, model->find(it.name));
    const bool is_pooled = stored_value || seed == model->seed();
    const int64_t version = stored_value ? stored_value->version : -1;
    Parts parts;
    std::optional<HostTensor> whole;
    for (const Place& place : it.places) {
      const auto slot = static_cast<size_t>(place.slot);
      const ArrangedOperand& order = arranged[place.rank][slot];
      const std::string key = key_of(it, version, place, order.kernel != nullptr);
      SharedWeight weight = is_pooled ? find(key) : SharedWeight{};
      if (weight.data == nullptr) {
        if (!whole) {
          TSR_ASSIGN_OR_RETURN(whole, values.make(it.name));
        }
        TSR_ASSIGN_OR_RETURN(weight,
                             cut_part(*whole, place, program.ranks[place.rank].slots[slot].bytes, order, devices));
        // A part in the model's own memory needs no entry; the model keeps it alive.
        if (is_pooled && !(stored_value && weight.owner == stored_value->tensor.keep_alive))
          keep(key, weight);
      }
      parts.push_back({place.rank, place.slot, std::move(weight)});
    }
    if (whole) {
      const auto is_in_place = [&](const Part& part) { return part.weight.owner == whole->keep_alive; };
      if (std::ranges::none_of(parts, is_in_place)) model->drop_pages(*whole);
    }
    return parts;
  };
  const std::shared_ptr<const ByteSource> file = model->source();
  bool in_file = false;
  const auto use = [&](size_t, Parts parts) -> Status {
    for (Part& part : parts) {
      in_file |= file && part.weight.owner == file;
      taken->set(part.rank, part.slot, std::move(part.weight));
    }
    return {};
  };
  TSR_RETURN_IF_ERROR(run_ordered_tasks<Parts>(weights.size(), max_threads, make, use));
  if (in_file) taken->unchanged = [file] { return file->unchanged(); };
  return std::shared_ptr<const SharedWeights>(std::move(taken));
}

}  // namespace tessera
