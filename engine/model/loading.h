// Loading: makes a model from a file, step by step: its contents, then the values that cannot stay in the
// file, a slice at a time. One thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/options.h"
#include "engine/base/work_progress.h"
#include "engine/model/shared_model.h"
#include "serialize/opened_model.h"

namespace tessera {

class Loading {
 public:
  // `name`: of the file, for messages; empty for a model from elsewhere.
  static Result<std::unique_ptr<Loading>> create(std::shared_ptr<const ByteSource> source, std::string name,
                                                 const Options& options);
  // Of a file or folder; of a folder of adapters their base, with them.
  static Result<std::unique_ptr<Loading>> create(const std::string& path, const Options& options);

  double done() const;  // share of the work; 1: `finish` has the model
  WorkProgress progress() const;
  Status step();  // some hundredths of a second, the first and last perhaps more; again after a failure
  Result<std::shared_ptr<SharedModel>> finish();  // once; kFailedPrecondition before the last step

 private:
  Loading(std::shared_ptr<const ByteSource> source, std::string name, bool verify)
      : source_(std::move(source)), name_(std::move(name)), verify_(verify) {}

  Status open();
  Status read_slices();
  // Reads a slice of the next parameter; takes the whole of one that stays in place.
  Status read_slice();

  const std::shared_ptr<const ByteSource> source_;
  const std::string name_;
  const bool verify_;
  std::string adapters_;  // folder of the adapters that the model gets; empty: none
  std::optional<OpenedModel> opened_;
  int64_t all_bytes_ = 0, read_bytes_ = 0;
  size_t next_ = 0;                     // of the parameters
  std::optional<TensorReader> reader_;  // of the next parameter, where it is read
  HostTensor value_;                    // of it
  std::span<std::byte> contents_;       // of value_; none where it is only checked
  std::vector<std::byte> buffer_;
  std::shared_ptr<SharedModel> model_;
  bool is_taken_ = false;
};

// All of it at once.
Result<std::shared_ptr<SharedModel>> load_shared_model(std::shared_ptr<const ByteSource> source,
                                                       std::string name);
Result<std::shared_ptr<SharedModel>> load_shared_model(const std::string& path);

}  // namespace tessera
