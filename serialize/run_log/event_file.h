// EventFile: a file of events as TensorBoard reads them: scalars and texts by step. Records are those of TFRecord
// (length, masked CRC-32C, bytes, masked CRC-32C), each a serialized tensorflow.Event. One thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "graph/base/result.h"

namespace tessera {

// CRC-32C (Castagnoli) of the bytes.
uint32_t crc32c(std::string_view bytes);

struct ScalarValue {
  std::string_view tag;
  double value;
};

class EventFile {
 public:
  // A new file "events.out.tfevents.<seconds>.<host>.<process>.<number>" in the folder, which is made where it is
  // absent. `resumed_at`, where not negative: TensorBoard drops what earlier files have of later steps.
  static Result<EventFile> create(const std::string& folder, int64_t resumed_at);
  EventFile(EventFile&& other) noexcept;
  EventFile& operator=(EventFile&&) = delete;
  ~EventFile();

  // One event; on return the system has it.
  Status add_scalars(int64_t step, std::span<const ScalarValue> values);
  Status add_text(int64_t step, std::string_view tag, std::string_view text);  // shown as Markdown
  const std::string& path() const { return path_; }

 private:
  EventFile(std::string path, int descriptor) : path_(std::move(path)), descriptor_(descriptor) {}
  Status write_event(std::string_view fields, int64_t step);

  std::string path_;
  int descriptor_ = -1;
};

}  // namespace tessera
