// SafetensorsWriter: small safetensors files for tests, valid unless asked otherwise.
#pragma once

#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "graph/base/text.h"

namespace tessera::testing {

class SafetensorsWriter {
 public:
  // `shape` as JSON: "[2, 3]".
  SafetensorsWriter& tensor(std::string_view name, std::string_view dtype, std::string_view shape,
                            std::string_view data) {
    return entry(name, dtype, shape, static_cast<int64_t>(data_.size()),
                 static_cast<int64_t>(data_.size() + data.size()), data);
  }
  SafetensorsWriter& f32(std::string_view name, std::string_view shape, std::span<const float> values) {
    const auto bytes = std::as_bytes(values);
    return tensor(name, "F32", shape, {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  }
  SafetensorsWriter& entry(std::string_view name, std::string_view dtype, std::string_view shape,
                           int64_t begin, int64_t end, std::string_view data) {
    const std::string fields =
        format(R"("dtype":"{}","shape":{},"data_offsets":[{},{}])", dtype, shape, begin, end);
    return raw(format(R"("{}":)", name) + "{" + fields + "}", data);
  }
  // A member of the header as it is.
  SafetensorsWriter& raw(std::string member, std::string_view data = {}) {
    members_.push_back(std::move(member));
    data_ += data;
    return *this;
  }

  std::string header() const { return "{" + join(members_, ",") + "}"; }
  std::string finish() const { return file_of(header(), data_); }
  static std::string file_of(std::string_view header, std::string_view data) {
    const uint64_t size = header.size();
    std::string file(reinterpret_cast<const char*>(&size), sizeof size);
    return file + std::string(header) + std::string(data);
  }

 private:
  std::vector<std::string> members_;
  std::string data_;
};

}  // namespace tessera::testing
