// Reshard: the cheapest sequence of moves between two layouts of a tensor.
// No communication is implicit: every mismatch between a value and its
// consumer becomes such a path, which is priced, lowered and executed.
//
// Exact: Dijkstra over specs. Moves act on the last axes of a dim (splits nest), over several axes at once
// where one collective over the product group does (ALGEBRA rule 6). Reordering the axes of a dim is found as
// gather and slice.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "graph/base/result.h"
#include "graph/device_mesh.h"
#include "graph/sharding_spec.h"

namespace tessera {

enum class MoveKind : uint8_t {
  kAllGather,      // removes the last axes of `dim`
  kReduceScatter,  // partial axes become the last axes of `dim`
  kAllReduce,      // removes partial axes
  kAllToAll,       // the last axes of `dim` become the last axes of `to_dim`
  kSlice,          // unused axes become the last axes of `dim`; local
  kPartialize,     // unused axes become partial: kept on coordinate 0, zero elsewhere; local
};

std::string_view to_text(MoveKind kind);

struct Move {
  MoveKind kind = MoveKind::kAllGather;
  std::vector<AxisId> axes;  // the product group, major first
  int dim = -1;
  int to_dim = -1;
  ShardingSpec before, after;
};

struct ReshardPath {
  std::vector<Move> moves;  // empty for equal layouts
  double cost = 0;          // in ring bytes, below
};

// Whether two specs put the same elements on every
// rank (units may differ where extents divide evenly).
bool same_layout(const ShardingSpec& a, const ShardingSpec& b, const Shape& global, const DeviceMesh& mesh);

// Ring bytes of a move over all ranks of the mesh; 0 for local moves. Exact for even splits.
double ring_bytes(const Move& move, const Shape& global, int64_t element_bytes, const DeviceMesh& mesh);

// Resharder: finds and caches paths. A path costs the ring bytes of one
// rank, plus `kCallBytes` per call, plus a small charge per locally copied
// byte; so bytes decide, then calls. Independent of the rank. Thread-safe.
class Resharder {
 public:
  static constexpr double kCallBytes = 64;

  explicit Resharder(DeviceMesh mesh) : mesh_(std::move(mesh)) {}
  const DeviceMesh& mesh() const { return mesh_; }

  // kUnsupported if no path exists (a maximum cannot be made partial).
  Result<ReshardPath> path(const ShardingSpec& from, const ShardingSpec& to, const Shape& global,
                           DType dtype);

 private:
  using Key = std::tuple<ShardingSpec, ShardingSpec, std::vector<int64_t>, int32_t>;
  Result<ReshardPath> search(const ShardingSpec& from, const ShardingSpec& to, const Shape& global,
                             double element_bytes) const;

  DeviceMesh mesh_;
  std::mutex mutex_;
  std::map<Key, ReshardPath> known_;
};

}  // namespace tessera
