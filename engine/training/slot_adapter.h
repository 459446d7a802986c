// SlotAdapter: an adapter in a slot of a trainer (graph/transform/adapter_slots.h): its description, and its values as those of
// an ordinary model with adapters.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/model/shared_model.h"
#include "engine/settings/trainer_settings.h"
#include "graph/base/result.h"
#include "graph/host_tensor.h"
#include "graph/transform/adapters.h"
#include "runtime/session.h"

namespace tessera {

class SlotAdapter {
 public:
  // `adapted`: the model with the adapter, and its first values; `slots`: settings of a trainer with slots. kInvalidArgument for
  // a rank above the slots', a weight without one, and dropout where there is no room for it; kUnsupported for what slots do not
  // compute: DoRA, biases, tables, starts (PiSSA), factors or dropout that differ between weights, other trained parameters.
  static Result<SlotAdapter> create(std::shared_ptr<SharedModel> adapted, const TrainerSettings& slots);

  double factor() const { return factor_; }
  double dropout() const { return dropout_; }
  int64_t rank() const;  // the largest
  const SharedModel& model() const { return *adapted_; }
  void set_seed(uint64_t seed) { seed_ = seed; }  // of first values

  // Copies the values of `model()` to the slot, in which all else becomes 0. `states`: all parameters and states of the program.
  Status write_first(Session& session, int32_t slot,
                     const std::vector<std::pair<std::string, TensorType>>& states) const;

  // The values of one name of the ordinary model ("block.0.q.lora_a"), or of its optimizer state ("block.0.q.lora_a.m").
  bool has(const std::string& name) const { return place_of(name).ok(); }
  Result<HostTensor> read(Session& session, int32_t slot, const std::string& name) const;
  Status write(Session& session, int32_t slot, const std::string& name, const HostTensor& value) const;
  // Names and types of these values, given the program's parameters and states: those with slots.
  std::vector<std::pair<std::string, TensorType>> values(
      const std::vector<std::pair<std::string, TensorType>>& states) const;
  // The ordinary model with the present values.
  Result<std::shared_ptr<SharedModel>> model_with_values(Session& session, int32_t slot) const;

 private:
  // A matrix of the ordinary model, and where it lies: rows [rank] of a slot of `state`.
  struct Matrix {
    std::string state;
    TensorType type;       // in the ordinary model
    int64_t rank = 0, columns = 0;
    bool transposes = false;  // the ordinary one is [columns, rank]
  };
  struct Place {
    const Matrix* matrix;
    std::string state;
  };
  Result<Place> place_of(const std::string& name) const;

  std::shared_ptr<SharedModel> adapted_;
  int64_t capacity_ = 0;  // rank of the slots
  double factor_ = 1, dropout_ = 0;
  uint64_t seed_ = 0;
  std::map<std::string, Matrix, std::less<>> matrices_;  // by name in the ordinary model
};

}  // namespace tessera
