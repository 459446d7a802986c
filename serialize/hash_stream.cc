#include "serialize/hash_stream.h"

#include <xxhash.h>

#include <new>

namespace tessera {

HashStream::HashStream() : state_(XXH3_createState()) {
  if (!state_ || XXH3_64bits_reset(state_.get()) != XXH_OK) throw std::bad_alloc();
}

void HashStream::add(std::span<const std::byte> bytes) {
  if (!bytes.empty()) XXH3_64bits_update(state_.get(), bytes.data(), bytes.size());
}

uint64_t HashStream::digest() const { return XXH3_64bits_digest(state_.get()); }

void HashStream::Free::operator()(XXH3_state_s* state) const { XXH3_freeState(state); }

}  // namespace tessera
