// Hash: a 64-bit hash of a stream of integers and texts, equal on every machine. For fingerprints of plain
// data; not cryptographic.
#pragma once

#include <bit>
#include <cstdint>
#include <string_view>

namespace tessera {

class Hash {
 public:
  void add(uint64_t word) {
    // The finaliser of splitmix64 over the running state: every input bit reaches every output bit.
    state_ += 0x9e3779b97f4a7c15ull + word;
    state_ = (state_ ^ (state_ >> 30)) * 0xbf58476d1ce4e5b9ull;
    state_ = (state_ ^ (state_ >> 27)) * 0x94d049bb133111ebull;
    state_ ^= state_ >> 31;
  }
  void add(int64_t word) { add(static_cast<uint64_t>(word)); }
  void add(uint32_t word) { add(uint64_t{word}); }
  void add(int32_t word) { add(static_cast<uint64_t>(int64_t{word})); }
  void add(uint8_t word) { add(uint64_t{word}); }
  void add(bool word) { add(uint64_t{word}); }
  void add(double value) { add(std::bit_cast<uint64_t>(value)); }
  void add(std::string_view text) {
    // Length first, so that "ab" + "c" and "a" + "bc" differ.
    add(static_cast<uint64_t>(text.size()));
    for (char c : text) add(uint64_t{static_cast<unsigned char>(c)});
  }
  uint64_t value() const { return state_; }

 private:
  uint64_t state_ = 0x7465737365726131ull;
};

}  // namespace tessera
