// values_of: a model's parameters by name, as floats.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tests/capi/c_api.h"

namespace capi_test {

using Values = std::map<std::string, std::vector<float>>;

inline Values values_of(const Model& model) {
  size_t count = 0;
  ok(tsr_model_parameter_count(model.get(), &count));
  Values all;
  for (size_t i = 0; i < count; ++i) {
    const std::string name = short_text([&](char* buffer, size_t capacity, size_t* size) {
      return tsr_model_parameter_name(model.get(), i, buffer, capacity, size);
    });
    tsr_tensor* value = nullptr;
    ok(tsr_model_read(model.get(), name.c_str(), &value));
    all[name] = floats(Tensor(value).get());
  }
  return all;
}

}  // namespace capi_test
