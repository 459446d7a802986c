// Loading: makes a model from a file in steps: its contents, then the values
// that cannot stay in the file, a slice at a time. One thread at a time.
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
  // `name`: the file's name for messages; empty for other sources.
  static Result<std::unique_ptr<Loading>> create(std::shared_ptr<const ByteSource> source, std::string name,
                                                 const Options& options);
  // Loads a file or folder; for a folder of adapters, their base with the adapters.
  static Result<std::unique_ptr<Loading>> create(const std::string& path, const Options& options);

  double done() const;  // share of the work; 1: `finish` is possible
  WorkProgress progress() const;
  Status step();        // about 50 ms, the first and last perhaps more; retried after a failure
  Result<std::shared_ptr<SharedModel>> finish();  // once; kFailedPrecondition before the last step

 private:
  Loading(std::shared_ptr<const ByteSource> source, std::string name, bool verify)
      : source_(std::move(source)), name_(std::move(name)), verify_(verify) {}

  Status open();
  Status read_slices();
  // Reads a slice of the next parameter, or takes one that stays in place.
  Status read_slice();

  const std::shared_ptr<const ByteSource> source_;
  const std::string name_;
  const bool verify_;
  std::string adapters_;  // folder of adapters to add; empty: none
  std::optional<OpenedModel> opened_;
  int64_t all_bytes_ = 0, read_bytes_ = 0;
  size_t next_ = 0;                     // next parameter
  std::optional<TensorReader> reader_;  // of the next parameter, if it is read
  HostTensor value_;                    // the next parameter's value
  std::span<std::byte> contents_;       // of value_; empty if it is only validated
  std::vector<std::byte> buffer_;
  std::shared_ptr<SharedModel> model_;
  bool is_taken_ = false;
};

// Loads a model at once.
Result<std::shared_ptr<SharedModel>> load_shared_model(std::shared_ptr<const ByteSource> source,
                                                       std::string name);
Result<std::shared_ptr<SharedModel>> load_shared_model(const std::string& path);

}  // namespace tessera
