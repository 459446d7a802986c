// AdapterPass: work of one adapter that waits for its turn in an AdapterTrainer.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engine/base/options.h"
#include "engine/data/token_batch.h"
#include "engine/settings/update_settings.h"
#include "graph/base/result.h"

namespace tessera {

enum class PassKind : uint8_t { kForward, kLoss, kGradients, kUpdate };

// QueuedBatch: a copy of a batch of any number of rows.
struct QueuedBatch {
  int64_t rows = 0, seq = 0;
  std::vector<int32_t> tokens = {}, labels = {}, positions = {}, segments = {};             // [rows, seq]; empty: absent
  std::vector<float> weights = {}, sampler_logprobs = {}, advantages = {}, gradients = {};  // likewise

  static QueuedBatch copy_of(const TokenBatch& batch, std::span<const float> gradients);
};

struct AdapterPass {
  int64_t number = 0, adapter = 0;
  PassKind kind = PassKind::kForward;
  QueuedBatch batch = {};
  std::string loss = {};
  double scale = 1;  // of the loss
  Options options = {};  // of the loss, without its scale
  double lr = 0;     // of an update; negative: the schedule's
  UpdateSettings update = {};
  int64_t done = 0;  // rows
  uint64_t seed = 0;  // of dropout, since its first rows were taken
  double value = 0;  // the loss of these rows
  std::vector<float> logprobs = {};

  int64_t rows_left() const { return batch.rows - done; }
  // Whether rows of both may be in one batch.
  bool can_share(const AdapterPass& other) const {
    return kind == other.kind && loss == other.loss && options == other.options;
  }
};

// FinishedPass: the result of a pass.
struct FinishedPass {
  int64_t pass = 0, adapter = 0;
  PassKind kind = PassKind::kForward;
  Status status = {};  // of a pass that failed
  // Sum over the rows, times the scale; of an update: sum over all rows since the last update.
  double loss = 0;
  int64_t step = 0;  // of an update, as grad_norm and lr
  double grad_norm = 0, lr = 0;
  std::vector<float> logprobs = {};  // [rows, seq]
};

// The text of tsr_adapter_trainer_next.
std::string to_json(const FinishedPass& pass);

// RowAdapter: what rows have from their adapter.
struct RowAdapter {
  int32_t slot = 0;
  double factor = 1, dropout = 0;
};

// SharedRows: rows of passes in one batch, filled up to equal length.
class SharedRows {
 public:
  explicit SharedRows(int64_t seq) : seq_(seq) {}

  // Appends `count` rows of a pass after those that are done.
  void add(const AdapterPass& pass, int64_t count, const RowAdapter& adapter);
  TokenBatch view() const;
  std::span<const float> gradients() const { return gradients_; }

 private:
  const int64_t seq_;
  int64_t rows_ = 0;
  bool has_weights_ = false, has_ratio_ = false, has_segments_ = false;
  std::vector<int32_t> tokens_, labels_, positions_, segments_, slots_;
  std::vector<float> weights_, sampler_logprobs_, advantages_, gradients_, factors_, scales_;
  std::vector<int64_t> seeds_, numbers_;
  std::vector<double> rates_;
};

}  // namespace tessera
