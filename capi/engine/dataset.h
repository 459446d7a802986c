// Dataset: token ids split into samples of seq + 1 (inputs and labels shifted by one), stride seq. Immutable;
// any thread. The sample at place n of the training order is a pure function of (seed, n): nothing to save or
// restore.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "capi/engine/options.h"
#include "serialize/tokenizer/tokenizer.h"

namespace tessera {

class Dataset {
 public:
  // Options are checked before a text is read.
  static Result<std::shared_ptr<const Dataset>> create(std::vector<int32_t> tokens, const Options& options);
  static Result<std::shared_ptr<const Dataset>> from_text(std::string_view text, const Tokenizer& tokenizer,
                                                          const Options& options);
  static Result<std::shared_ptr<const Dataset>> from_file(const std::string& path, const Tokenizer& tokenizer,
                                                          const Options& options);

  // Whether these are options of a dataset of texts.
  static Status check_options(const Options& options) { return read_cut(options, true).status(); }

  int64_t seq() const { return seq_; }
  int64_t train_samples() const { return train_samples_; }
  int64_t eval_samples() const { return eval_samples_; }
  int32_t largest_token() const { return largest_token_; }
  // Entropy of the token frequencies of the whole text, nats a token: the loss of a model that knows only
  // those.
  double unigram_entropy() const;
  uint64_t fingerprint() const;  // of tokens, cut and order

  // Sample at place `place` (0, 1, ...) of the endless training order: seq + 1 ids.
  std::span<const int32_t> training_sample(int64_t place) const;
  std::span<const int32_t> eval_sample(int64_t number) const;
  std::string info_json() const;

 private:
  struct Cut {
    int64_t seq;
    double eval_fraction;
    bool shuffle;
    uint64_t seed;
    bool special;  // control tokens written out in a text are read as such
  };
  static Result<Cut> read_cut(const Options& options, bool of_text);
  static Result<std::shared_ptr<const Dataset>> cut_tokens(std::vector<int32_t> tokens, const Cut& cut);

  Dataset() = default;
  std::span<const int32_t> sample(int64_t number) const;

  std::vector<int32_t> tokens_;
  int64_t seq_ = 0, train_samples_ = 0, eval_samples_ = 0;
  int32_t largest_token_ = 0;
  bool shuffle_ = true;
  uint64_t seed_ = 0;
};

// Place i of a random permutation of 0..count-1 that depends on `key` alone, without storing it: a Feistel
// network on the next power of four, repeated until the result is in range (at most 4 rounds on average).
int64_t permuted(int64_t i, int64_t count, uint64_t key);

}  // namespace tessera
