// RunSeries: the course of a training run in bounded memory: steps in buckets that
// grow with the run, evaluations, samples and checkpoints. Plain data for a page.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "text/json.h"

namespace tessera {

struct StepRecord {
  int64_t step = 0;
  double loss = 0, lr = 0, grad_norm = 0, seconds = 0;
  int64_t tokens = 0;
};

class RunSeries {
 public:
  void add_step(const StepRecord& step);
  // Adds a line other than a step: an evaluation, value, sample or checkpoint, by its
  // "kind". Of too many, every other one is dropped; samples keep the first and the latest.
  void add_line(const Json& line);

  // {"steps": {"step": [last of each bucket], "count", "loss" (mean), "loss_low", "loss_high", "lr", "grad_norm",
  // "grad_norm_high", "seconds", "seconds_high", "tokens_per_second"}, "evaluations", "values", "samples", "checkpoints"}
  Json to_json() const;

 private:
  struct Bucket {
    int64_t last = 0, count = 0, tokens = 0;
    double loss = 0, loss_low = 0, loss_high = 0, lr = 0, grad_norm = 0, grad_norm_high = 0, seconds = 0,
           seconds_high = 0;

    void merge(const Bucket& next);
  };

  std::vector<Bucket> buckets_;
  int64_t width_ = 1;  // steps per full bucket
  std::vector<Json> evaluations_, values_, samples_, checkpoints_;
};

}  // namespace tessera
