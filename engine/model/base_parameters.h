// BaseParameters: parameters that a trainer reads but does not train: the model's own values, in
// place, and their hashes, computed on first use. Checkpoints omit them. One thread at a time.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/model/shared_model.h"
#include "graph/host_tensor.h"
#include "serialize/checkpoint.h"

namespace tessera {

class BaseParameters {
 public:
  BaseParameters() = default;
  // The parameters among `names` with values in the model, which are kept alive.
  // Random values, and values in memory that the caller may free, are excluded.
  static Result<BaseParameters> of(const SharedModel& model, const std::vector<std::string>& names);

  // The model's original value; null for other parameters.
  const HostTensor* find(std::string_view name) const;
  // Whether the trainer has replaced the value.
  bool is_replaced(std::string_view name) const;
  void set_replaced(std::string_view name, bool is_replaced);
  bool is_own(std::string_view name, const HostTensor& value) const;  // equal to the model's original value
  const std::string& path() const { return path_; }  // path of the model's file; empty: none

  // Hashes `names`, all of which are here, on `threads`
  // threads; results in order. kCancelled once `cancelled`.
  Result<std::vector<BaseTensor>> hashed(const std::vector<std::string>& names, size_t threads,
                                         const std::atomic<bool>& cancelled);

 private:
  struct Parameter {
    HostTensor value;
    std::optional<uint64_t> xxh3;
    bool is_replaced = false;
  };
  std::map<std::string, Parameter, std::less<>> parameters_;
  std::shared_ptr<const ByteSource> file_;  // may be null
  std::string path_;
};

}  // namespace tessera
