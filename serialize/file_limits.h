// Limits of our files. Readers refuse larger files, so that a hostile file costs no more than
// its size. Writers refuse such models early, when a model is made or a training starts.
#pragma once

#include <cstddef>
#include <cstdint>

#include "graph/base/status.h"

namespace tessera {

struct CheckpointInfo;
struct Model;

inline constexpr size_t kMaxFileTensors = size_t{1} << 22;  // of a graph
// Lookups in these two are linear.
inline constexpr size_t kMaxFileOutputs = size_t{1} << 14;
inline constexpr size_t kMaxFileSymbols = size_t{1} << 12;
inline constexpr size_t kMaxShards = size_t{1} << 16;
inline constexpr uint64_t kShardBytes = uint64_t{1} << 30;  // size at which the next shard begins
// FlatBuffers, and so readers, are limited to 2 GiB.
inline constexpr uint64_t kMaxIndexBytes = (uint64_t{1} << 31) - 2;

// kUnsupported names the limit, the actual number, and a remedy.
Status check_storable(const Model& model);
Status check_storable(const CheckpointInfo& checkpoint);

// Upper bound of the model's index size.
uint64_t index_bytes_bound(const Model& model);
uint64_t index_bytes_bound(const CheckpointInfo& checkpoint);

}  // namespace tessera
