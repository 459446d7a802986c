// Limits of our files. A reader refuses what is beyond them, so that a hostile file costs no more than its size; a
// writer refuses it too, when a model is made or a training starts, and not after the work is done.
#pragma once

#include <cstddef>
#include <cstdint>

#include "graph/base/status.h"

namespace tessera {

struct CheckpointInfo;
struct Model;

inline constexpr size_t kMaxFileTensors = size_t{1} << 22;  // of a graph
// These two are looked up one by one.
inline constexpr size_t kMaxFileOutputs = size_t{1} << 14;
inline constexpr size_t kMaxFileSymbols = size_t{1} << 12;
inline constexpr size_t kMaxShards = size_t{1} << 16;
inline constexpr uint64_t kShardBytes = uint64_t{1} << 30;  // at which the next shard begins
// FlatBuffers stop at 2 GiB; so does what a reader is willing to look at.
inline constexpr uint64_t kMaxIndexBytes = (uint64_t{1} << 31) - 2;

// kUnsupported names the limit, what the model (checkpoint) has of it, and what to do.
Status check_storable(const Model& model);
Status check_storable(const CheckpointInfo& checkpoint);

// Bytes that the index of such a file takes at most.
uint64_t index_bytes_bound(const Model& model);
uint64_t index_bytes_bound(const CheckpointInfo& checkpoint);

}  // namespace tessera
