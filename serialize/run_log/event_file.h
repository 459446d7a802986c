// EventFile: scalars and texts by step, for TensorBoard. Records are those of TFRecord (length,
// masked CRC-32C, bytes, masked CRC-32C), each a serialized tensorflow.Event. One thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "graph/base/result.h"
#include "serialize/run_log/append_file.h"

namespace tessera {

// CRC-32C (Castagnoli) of the bytes.
uint32_t crc32c(std::string_view bytes);

struct ScalarValue {
  std::string_view tag;
  double value;
};

class EventFile {
 public:
  // Creates "events.out.tfevents.<seconds>.<host>.<process>.<number>" in the folder, which is created
  // if absent. `resumed_at`, unless negative: TensorBoard drops later steps of earlier files.
  static Result<EventFile> create(const std::string& folder, int64_t resumed_at);

  // Writes one event before it returns; a failed write is retried before the next event.
  Status add_scalars(int64_t step, std::span<const ScalarValue> values);
  Status add_text(int64_t step, std::string_view tag, std::string_view text);  // shown as Markdown
  Status flush() { return file_.append({}); }                                  // retries failed writes
  const std::string& path() const { return file_.path(); }

 private:
  explicit EventFile(AppendFile file) : file_(std::move(file)) {}
  Status write_event(std::string_view fields, int64_t step);

  AppendFile file_;
};

}  // namespace tessera
