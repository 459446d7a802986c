#include "graph/transform/fewer_blocks.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "graph/analysis/block_scope.h"
#include "graph/base/text.h"
#include "graph/transform/graph_copy.h"

namespace tessera {

namespace {

constexpr int32_t kNoBlock = -1;

struct Block {
  std::string scope;
  std::vector<NodeId> nodes;
  std::vector<TensorId> results;  // read by other blocks, in order
  std::string kind;
};

class BlockCutter {
 public:
  explicit BlockCutter(const Graph& graph) : graph_(graph), block_of_(graph.nodes().size(), kNoBlock) {}

  Result<FewerBlocks> run() {
    find_blocks();
    TSR_RETURN_IF_ERROR(find_results());
    for (Block& block : blocks_) block.kind = kind_of(block);
    choose();
    TSR_ASSIGN_OR_RETURN(Graph graph, copy_kept());
    return FewerBlocks{std::move(graph), std::move(like_)};
  }

 private:
  void find_blocks() {
    std::map<std::string_view, int32_t> known;
    for (size_t n = 0; n < graph_.nodes().size(); ++n) {
      const std::string_view scope = block_scope(graph_.nodes()[n].scope);
      if (scope.empty()) continue;
      const auto [at, is_new] = known.emplace(scope, static_cast<int32_t>(blocks_.size()));
      if (is_new) blocks_.emplace_back().scope = scope;
      block_of_[n] = at->second;
      blocks_[static_cast<size_t>(at->second)].nodes.push_back(NodeId{static_cast<uint32_t>(n)});
    }
  }

  int32_t maker(TensorId tensor) const {
    const NodeId producer = graph_.tensor(tensor).producer;
    return producer == kNoNode ? kNoBlock : block_of_[index(producer)];
  }

  Status find_results() {
    std::vector<std::set<TensorId>> read(blocks_.size());
    for (size_t n = 0; n < block_of_.size(); ++n)
      for (const TensorId input : graph_.nodes()[n].inputs) {
        const int32_t from = maker(input), to = block_of_[n];
        if (from == kNoBlock || from == to) continue;
        if (to != kNoBlock && to != from + 1)
          return Status(StatusCode::kUnsupported, format("'{}' reads '{}' of '{}', and a block is wanted to read the one before it",
                                                         blocks_[static_cast<size_t>(to)].scope, graph_.tensor(input).name,
                                                         blocks_[static_cast<size_t>(from)].scope));
        read[static_cast<size_t>(from)].insert(input);
      }
    for (const NamedTensor& output : graph_.outputs())
      if (const int32_t from = maker(output.tensor); from != kNoBlock) read[static_cast<size_t>(from)].insert(output.tensor);
    for (size_t b = 0; b < blocks_.size(); ++b) blocks_[b].results.assign(read[b].begin(), read[b].end());
    return {};
  }

  // A text of the block's ops, attributes, types and edges: equal for blocks of one kind.
  std::string kind_of(const Block& block) const {
    std::map<TensorId, size_t> made;
    std::string text;
    for (const NodeId id : block.nodes) {
      const Node& node = graph_.node(id);
      text += node.op->name;
      for (const Attr& attr : node.attrs)
        if (attr.name != "salt") text += format(" {}={}", attr.name, to_text(attr.value));
      for (const TensorId input : node.inputs) {
        const auto at = made.find(input);
        text += at == made.end() ? format(" ({} {})", static_cast<int>(graph_.tensor(input).kind), to_text(graph_.type(input)))
                                 : format(" {}", at->second);
      }
      for (const TensorId output : node.outputs) made.emplace(output, made.size());
      text += '\n';
    }
    for (const TensorId result : block.results) text += format("{} ", made.at(result));
    return text;
  }

  void choose() {
    const size_t count = blocks_.size();
    std::map<std::string_view, size_t> first;
    for (size_t b = 1; b + 1 < count; ++b) first.emplace(blocks_[b].kind, b);
    keeps_.assign(count, false);
    if (count > 0) keeps_.front() = keeps_.back() = true;
    for (const auto& [kind, b] : first) keeps_[b] = true;
    std::vector<int32_t> number(count, kNoBlock);
    for (size_t b = 0, kept = 0; b < count; ++b)
      if (keeps_[b]) number[b] = static_cast<int32_t>(kept++);
    for (size_t b = 0; b < count; ++b) like_.push_back(keeps_[b] ? number[b] : number[first.at(blocks_[b].kind)]);
    representative_.assign(count, 0);
    for (size_t b = 0; b < count; ++b) representative_[b] = keeps_[b] ? b : first.at(blocks_[b].kind);
  }

  // Returns the tensor that replaces a removed block's result: the previous block's
  // result of the same type, or the same result of the kept block of its kind.
  Result<TensorId> stand_in(size_t b, size_t result) const {
    const TensorType& type = graph_.type(blocks_[b].results[result]);
    size_t before = 0;
    for (size_t r = 0; r <= result; ++r) before += graph_.type(blocks_[b].results[r]) == type;
    for (const TensorId of_previous : blocks_[b - 1].results)
      if (graph_.type(of_previous) == type && --before == 0) return of_previous;
    if (type.shape.rank() == 0) return blocks_[representative_[b]].results[result];
    return Status(StatusCode::kUnsupported, format("'{}' passes on '{}', and '{}' has nothing like it to pass on in its stead",
                                                   blocks_[b].scope, graph_.tensor(blocks_[b].results[result]).name,
                                                   blocks_[b - 1].scope));
  }

  Result<Graph> copy_kept() const {
    std::vector<bool> reads(graph_.tensors().size(), false), goes(graph_.tensors().size(), false);
    for (size_t n = 0; n < block_of_.size(); ++n)
      for (const TensorId input : graph_.nodes()[n].inputs) (stays(block_of_[n]) ? reads : goes)[index(input)] = true;
    std::map<TensorId, TensorId> replaced;
    for (size_t b = 0; b < blocks_.size(); ++b)
      for (size_t r = 0; !keeps_[b] && r < blocks_[b].results.size(); ++r) {
        TSR_ASSIGN_OR_RETURN(replaced[blocks_[b].results[r]], stand_in(b, r));
      }
    GraphCopy copy(graph_);
    for (size_t t = 0; t < graph_.tensors().size(); ++t) {
      const TensorId id{static_cast<uint32_t>(t)};
      const Tensor& tensor = graph_.tensor(id);
      if (tensor.producer == kNoNode) {
        if (reads[t] || !goes[t]) TSR_RETURN_IF_ERROR(copy.copy_tensor(id));
      } else if (stays(block_of_[index(tensor.producer)])) {
        if (tensor.output_index == 0) TSR_RETURN_IF_ERROR(copy.copy_node(tensor.producer));
      } else if (const auto at = replaced.find(id); at != replaced.end()) {
        copy.replace(id, copy.mapped(at->second));
      }
    }
    TSR_RETURN_IF_ERROR(copy.copy_results());
    return std::move(copy.graph());
  }

  bool stays(int32_t block) const { return block == kNoBlock || keeps_[static_cast<size_t>(block)]; }

  const Graph& graph_;
  std::vector<int32_t> block_of_;  // by node
  std::vector<Block> blocks_;
  std::vector<bool> keeps_;              // by block
  std::vector<size_t> representative_;   // by block: the kept block of its kind
  std::vector<int32_t> like_;
};

}  // namespace

Result<FewerBlocks> with_fewer_blocks(const Graph& forward) { return BlockCutter(forward).run(); }

}  // namespace tessera
