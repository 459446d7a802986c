// EventFile: scalars and texts by step, in a file that TensorBoard reads. Records are those of TFRecord (length, masked
// CRC-32C, bytes, masked CRC-32C), each a serialized tensorflow.Event. One thread.
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
  // Creates "events.out.tfevents.<seconds>.<host>.<process>.<number>" in the folder, and the folder where it is absent.
  // `resumed_at`, unless negative: TensorBoard drops the later steps of earlier files.
  static Result<EventFile> create(const std::string& folder, int64_t resumed_at);
  EventFile(EventFile&& other) noexcept;
  EventFile& operator=(EventFile&&) = delete;
  ~EventFile();

  // Writes one event to the system before it returns.
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
