// HashStream: incremental xxh3, equal to xxh3 of the concatenated bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

struct XXH3_state_s;

namespace tessera {

class HashStream {
 public:
  HashStream();
  void add(std::span<const std::byte> bytes);
  uint64_t digest() const;

 private:
  struct Free {
    void operator()(XXH3_state_s* state) const;
  };
  std::unique_ptr<XXH3_state_s, Free> state_;
};

}  // namespace tessera
