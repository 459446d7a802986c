// ProtobufReader: reads the fields of a protocol buffer message in order. Every length is checked.
#pragma once

#include <cstdint>
#include <cstring>
#include <string_view>

namespace tessera {

class ProtobufReader {
 public:
  explicit ProtobufReader(std::string_view message) : left_(message) {}

  // False at the end, and for a broken message; ok() is then false.
  bool next() {
    if (left_.empty() || !ok_) return false;
    const uint64_t tag = varint();
    field_ = tag >> 3;
    switch (tag & 7) {
      case 0: number_ = varint(); break;
      case 1: take(8); break;
      case 2: take(varint()); break;
      case 5: take(4); break;
      default: ok_ = false;
    }
    return ok_;
  }
  bool ok() const { return ok_; }
  uint64_t field() const { return field_; }
  uint64_t number() const { return number_; }        // of a varint
  std::string_view bytes() const { return bytes_; }  // of other types
  float real() const {
    float value = 0;
    if (bytes_.size() == sizeof value) std::memcpy(&value, bytes_.data(), sizeof value);
    return value;
  }

 private:
  uint64_t varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64 && !left_.empty(); shift += 7) {
      const auto byte = static_cast<uint8_t>(left_[0]);
      left_.remove_prefix(1);
      value |= uint64_t{byte & 0x7fu} << shift;
      if (byte < 0x80) return value;
    }
    ok_ = false;
    return 0;
  }
  void take(uint64_t size) {
    ok_ = ok_ && size <= left_.size();
    if (!ok_) return;
    bytes_ = left_.substr(0, size);
    left_.remove_prefix(size);
  }

  std::string_view left_, bytes_;
  uint64_t field_ = 0, number_ = 0;
  bool ok_ = true;
};

}  // namespace tessera
