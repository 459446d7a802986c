// Messages between processes: numbers, texts and tensors, one after the other.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "graph/base/result.h"
#include "graph/host_tensor.h"

namespace tessera {

class MessageWriter {
 public:
  void put(int64_t number);
  void put(std::string_view text);
  void put(const TensorType& type);
  void put(const HostTensor& tensor);
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

// Reads in the order of the writes. kInternal for what another library wrote.
class MessageReader {
 public:
  explicit MessageReader(std::string_view text) : rest_(text) {}

  bool is_at_end() const { return rest_.empty(); }
  Result<int64_t> number();
  Result<std::string_view> text();
  Result<TensorType> type();
  Result<HostTensor> tensor();  // its bytes are those of the message

 private:
  std::string_view rest_;
};

}  // namespace tessera
