// BaseParameters: what a trainer was given and does not train: the model's own values where they lie, and their
// hashes, made once when they are first wanted. A checkpoint leaves them out. One thread at a time.
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
  // The parameters among `names` whose values the model holds; it keeps these alive. Left out: values that are drawn
  // at random, and those in memory that its owner may free.
  static Result<BaseParameters> of(const SharedModel& model, const std::vector<std::string>& names);

  // The value as the model gave it; null for others.
  const HostTensor* find(std::string_view name) const;
  // Whether the trainer has another value by now.
  bool is_replaced(std::string_view name) const;
  void set_replaced(std::string_view name, bool is_replaced);
  bool is_own(std::string_view name, const HostTensor& value) const;  // equal to what the model gave
  const std::string& path() const { return path_; }  // of the model's file; empty without one

  // With their hashes, in the order of `names`, which are all here; `threads` hash at a time. kCancelled once
  // `cancelled`.
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
