// StoredValues: a model's values in a program's storage
// types: in place if types agree, else converted. Slots for adapters are 0. Any thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "engine/model/shared_model.h"
#include "graph/base/result.h"
#include "graph/host_tensor.h"
#include "graph/program.h"

namespace tessera {

class StoredValues {
 public:
  // `seed` draws absent values. The model must outlive this.
  StoredValues(const SharedModel& model, const Program& program, uint64_t seed);

  // The program's parameters, by name.
  const std::map<std::string, TensorType>& types() const { return types_; }

  Result<HostTensor> make(const std::string& name) const;

 private:
  const SharedModel& model_;
  const uint64_t seed_;
  std::map<std::string, TensorType> types_;
};

}  // namespace tessera
