// SharedModel: a Model shared by several handles, trainers and generators. Any thread; one lock. Parameters
// without a value are drawn at first use.
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
  // `tokenizer` is made from the model's; models of files come from Loading.
  SharedModel(Model model, uint64_t seed, std::shared_ptr<const Tokenizer> tokenizer = nullptr);
  ~SharedModel();

  static Result<std::shared_ptr<SharedModel>> describe(std::string_view description, const Options& options);
  static Result<std::shared_ptr<SharedModel>> from_graph(const Graph& graph, const Options& options);

  static Status check_path(const std::string& path);  // what save would say at once

  Graph graph() const;
  // With parameters that are stored in fewer bits as f32 ones.
  Result<Graph> graph_with_wide(std::span<const std::string> parameters) const;
  Model snapshot() const;                            // shares the values
  std::vector<std::string> parameter_names() const;  // in graph order
  Result<HostTensor> read(std::string_view parameter);
  // Like `read`, but a drawn value is not kept: for callers that copy it at once.
  Result<HostTensor> read_uncached(std::string_view parameter, uint64_t seed) const;
  // The value, where the parameter has one; `version` changes whenever it does.
  struct Value {
    HostTensor tensor;
    int64_t version = 0;
  };
  Result<std::optional<Value>> find(std::string_view parameter) const;
  std::shared_ptr<const ByteSource> source()
      const;  // of the model's file, which owns its values; may be null
  // Files and folders that the model was read from, and those of the models that it was made of.
  std::vector<std::string> read_paths() const;
  // The read paths that a save would lose: files of models that this one was made of, or trained from.
  std::vector<std::string> lost_paths() const;
  void add_read_paths(const std::vector<std::string>& paths);
  // The checkpoint of the run that goes on in this model; "": none.
  std::string resumed() const;
  void set_resumed(std::string checkpoint);
  // Takes read_paths and resumed of the model that this one is made of.
  void set_origin(const SharedModel& made_of);
  WeightPool& weights() const { return *weights_; }
  // One object of each type, made at first use and kept as long as the model lives, such as its ProgramCache.
  template <class Kept>
  Kept& kept() const {
    const std::scoped_lock lock(kept_mutex_);
    std::shared_ptr<void>& kept = kept_[typeid(Kept)];
    if (!kept) kept = std::make_shared<Kept>();
    return *static_cast<Kept*>(kept.get());
  }
  // Gives back the memory of a value that lies in the model's file, once it was copied to where it is used.
  void drop_pages(const HostTensor& value) const;
  uint64_t seed() const { return seed_; }
  Status write(std::string_view parameter, const HostTensor& value);
  // Makes f32 parameters of those that are stored in fewer bits, with the same values: before `write` gives
  // f32 ones.
  Status widen(std::span<const std::string> parameters);
  Status check_parameter(std::string_view name) const;  // kNotFound names the nearest

  std::string metadata(std::string_view key) const;
  void set_metadata(std::string key, std::string value);
  std::shared_ptr<const Tokenizer> tokenizer() const;  // null when it has none
  void set_tokenizer(std::shared_ptr<const Tokenizer> tokenizer);
  std::string info_json() const;
  int64_t context_length() const;
  // Rows of logits, which may be more than the tokenizer has tokens; 0 without an output "logits".
  int64_t logit_rows() const;  // from metadata or the capacity of symbol T; 0 when unknown

 private:
  Result<TensorId> find_parameter(std::string_view name) const;
  // Null if it was not drawn yet.
  Result<const HostTensor*> find_value(std::string_view name) const;

  mutable std::mutex mutex_;
  Model model_;
  std::vector<std::string> more_read_paths_;  // besides those of model_.source
  std::string resumed_;
  std::shared_ptr<const Tokenizer> tokenizer_;  // made from model_.tokenizer
  const int64_t blocks_;                        // of the graph, for drawing
  const uint64_t seed_;
  std::map<std::string, int64_t, std::less<>> versions_;  // of parameters that were written; else 0
  const std::unique_ptr<WeightPool> weights_;
  mutable std::mutex kept_mutex_;
  mutable std::map<std::type_index, std::shared_ptr<void>> kept_;
};

}  // namespace tessera
