// SharedModel: a Model shared by several handles, trainers and generators.
// Any thread; one lock. Parameters without a value are drawn at first use.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <typeindex>
#include <vector>

#include "engine/base/options.h"
#include "serialize/model.h"

namespace tessera {

class WeightPool;

class SharedModel {
 public:
  // `tokenizer`: made from the model's; Loading makes models from files.
  SharedModel(Model model, uint64_t seed, std::shared_ptr<const Tokenizer> tokenizer = nullptr);
  ~SharedModel();

  static Result<std::shared_ptr<SharedModel>> describe(std::string_view description, const Options& options);
  static Result<std::shared_ptr<SharedModel>> from_graph(const Graph& graph, const Options& options);

  static Status check_path(const std::string& path);  // errors that save would return at once

  Graph graph() const;  // without a draft block
  // The block that predicts further tokens, as a model (graph/transform/draft_block.h). kInvalidArgument: there is none.
  Result<Graph> draft_block() const;
  // The graph with these parameters, stored in fewer bits, as f32.
  Result<Graph> graph_with_wide(std::span<const std::string> parameters) const;
  Model snapshot() const;                            // shares the values
  std::vector<std::string> parameter_names() const;  // in graph order
  Result<HostTensor> read(std::string_view parameter);
  // Like `read`, but a drawn value is not kept; for callers that copy it at once.
  Result<HostTensor> read_uncached(std::string_view parameter, uint64_t seed) const;
  // Value: the parameter's value, if it has one; `version` changes with each write.
  struct Value {
    HostTensor tensor;
    int64_t version = 0;
  };
  Result<std::optional<Value>> find(std::string_view parameter) const;
  std::shared_ptr<const ByteSource> source()
      const;  // the model's file, which owns its values; may be null
  // Files and folders read for this model and for the models it was made from.
  std::vector<std::string> read_paths() const;
  // Read paths that a save would destroy: files of source models, or of the training's base.
  std::vector<std::string> lost_paths() const;
  void add_read_paths(const std::vector<std::string>& paths);
  // The checkpoint of the run that continues in this model; "": none.
  std::string resumed() const;
  void set_resumed(std::string checkpoint);
  // Inherits read_paths and resumed from the model that this one is made from.
  void set_origin(const SharedModel& made_of);
  WeightPool& weights() const { return *weights_; }
  // One object per type, created on first use and kept for the model's lifetime, such as its ProgramCache.
  template <class Kept>
  Kept& kept() const {
    const std::scoped_lock lock(kept_mutex_);
    std::shared_ptr<void>& kept = kept_[typeid(Kept)];
    if (!kept) kept = std::make_shared<Kept>();
    return *static_cast<Kept*>(kept.get());
  }
  // Releases the page cache of a value in the model's file, after it was copied.
  void drop_pages(const HostTensor& value) const;
  uint64_t seed() const { return seed_; }
  Status write(std::string_view parameter, const HostTensor& value);
  // Converts narrow parameters to f32 with the
  // same values, before `write` sets f32 values.
  Status widen(std::span<const std::string> parameters);
  Status check_parameter(std::string_view name) const;  // kNotFound names the nearest parameter

  std::string metadata(std::string_view key) const;
  void set_metadata(std::string key, std::string value);
  std::shared_ptr<const Tokenizer> tokenizer() const;  // null: none
  void set_tokenizer(std::shared_ptr<const Tokenizer> tokenizer);
  std::string info_json() const;
  int64_t context_length() const;
  // Rows of logits, possibly more than the tokenizer's tokens; 0 without an output "logits".
  int64_t logit_rows() const;  // from metadata or the capacity of symbol T; 0: unknown

 private:
  void set_forward();
  Result<TensorId> find_parameter(std::string_view name) const;
  // Null if not drawn yet.
  Result<const HostTensor*> find_value(std::string_view name) const;

  mutable std::mutex mutex_;
  Model model_;
  std::optional<Graph> forward_;  // model_.graph without its draft block; nullopt: it has none
  std::vector<std::string> more_read_paths_;  // in addition to those of model_.source
  std::string resumed_;
  std::shared_ptr<const Tokenizer> tokenizer_;  // made from model_.tokenizer
  const int64_t blocks_;                        // blocks of the graph, for drawing
  const uint64_t seed_;
  std::map<std::string, int64_t, std::less<>> versions_;  // of written parameters; else 0
  const std::unique_ptr<WeightPool> weights_;
  mutable std::mutex kept_mutex_;
  mutable std::map<std::type_index, std::shared_ptr<void>> kept_;
};

}  // namespace tessera
