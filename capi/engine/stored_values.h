// StoredValues: a model's values as a program stores its parameters: the model's own where types are the same,
// else converted. Any thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "capi/engine/shared_model.h"
#include "graph/program.h"
#include "graph/transform/weight_storage.h"

namespace tessera {

class StoredValues {
 public:
  // `seed` draws parameters without a value. Model and program outlive it.
  StoredValues(const SharedModel& model, const Program& program, uint64_t seed);

  // Parameters of the program that have values of their own, in order of their names; scales come with the
  // weight that they scale.
  const std::vector<std::string>& names() const { return names_; }
  const TensorType& type(std::string_view name) const { return types_.find(name)->second; }
  // The name of the weight's scales; empty without.
  std::string scales_of(std::string_view name) const;

  Result<StoredWeight> make(const std::string& name) const;

 private:
  const SharedModel& model_;
  const uint64_t seed_;
  std::map<std::string, TensorType, std::less<>> types_;
  std::vector<std::string> names_;
};

}  // namespace tessera
