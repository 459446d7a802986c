// Limits of our files. A reader refuses files beyond them, so that a hostile file costs no more than its size. A writer
// refuses such models too, when a model is made or a training starts, and not after the work is done.
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
// FlatBuffers are limited to 2 GiB, and so are readers.
inline constexpr uint64_t kMaxIndexBytes = (uint64_t{1} << 31) - 2;

// kUnsupported names the limit, the model's (checkpoint's) number, and a remedy.
Status check_storable(const Model& model);
Status check_storable(const CheckpointInfo& checkpoint);

// Largest size of the index of such a file.
uint64_t index_bytes_bound(const Model& model);
uint64_t index_bytes_bound(const CheckpointInfo& checkpoint);

}  // namespace tessera
