// Graph <-> FlatBuffer. Internal to serialize/*.cc.
#pragma once

#include "graph/graph.h"
#include "serialize/flatbuffer_reader.h"
#include "serialize/schema/model_generated.h"

namespace tessera {

flatbuffers::Offset<file::Graph> write_graph(flatbuffers::FlatBufferBuilder& builder, const Graph& graph);

// Rebuilds the graph by add_tensor and add_node, so that nothing
// is trusted: inferred types must equal the stored ones.
Result<Graph> read_graph(const file::Graph& stored, FlatBufferReader& reader);

}  // namespace tessera
