// Checkpoint: a folder with a manifest and shards, independent of sharding: whole tensors by
// name, read and written one at a time. Written under a temporary name, fsynced, and renamed.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "graph/base/result.h"
#include "graph/base/shape.h"
#include "graph/host_tensor.h"

namespace tessera {

// BaseTensor: a parameter unchanged by training. A checkpoint stores this instead of its values.
struct BaseTensor {
  std::string name;
  TensorType type;
  uint64_t xxh3 = 0;  // of the contents
  bool operator==(const BaseTensor&) const = default;
};

struct CheckpointInfo {
  int64_t step = 0;
  std::map<std::string, std::string> values;  // data position, RNG seed, schedule, options: as text
  std::vector<std::pair<std::string, TensorType>> tensors;  // parameters and state, in stored order
  std::vector<BaseTensor> base;                             // the model's unchanged parameters
};

// Hash of names, types, shapes and contents.
uint64_t base_fingerprint(std::span<const BaseTensor> base);

// Reads one tensor at a time, so that peak memory is one copy of the largest.
using ReadTensor = std::function<Status(std::string_view name, std::span<std::byte> out)>;

// WrittenCheckpoint: a checkpoint next to its folder, removed with this object unless committed.
class WrittenCheckpoint {
 public:
  WrittenCheckpoint();
  ~WrittenCheckpoint();
  WrittenCheckpoint(WrittenCheckpoint&&) noexcept;
  WrittenCheckpoint& operator=(WrittenCheckpoint&&) noexcept;
  Status commit();  // moves it into the folder; once

 private:
  friend Result<WrittenCheckpoint> write_checkpoint(const std::string&, const CheckpointInfo&,
                                                    const ReadTensor&);
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// commit() makes `folder` the new checkpoint; without it the folder stays as it was. A full disk, a kill or a power cut at any
// point loses nothing.
Result<WrittenCheckpoint> write_checkpoint(const std::string& folder, const CheckpointInfo& info,
                                           const ReadTensor& read);

// Checks that `folder` can be saved to, with the errors of write_checkpoint before
// its first tensor. Removes leftovers of a killed save, and leaves no files.
Status check_checkpoint_folder(const std::string& folder);

class CheckpointReader {
 public:
  static Result<CheckpointReader> open(
      const std::string& folder);  // checks manifest and sizes of an untrusted folder
  const CheckpointInfo& info() const { return info_; }
  Result<HostTensor> read(std::string_view name) const;  // checks its xxh3

 private:
  CheckpointInfo info_;
  std::shared_ptr<const struct CheckpointFiles> files_;
};

}  // namespace tessera
