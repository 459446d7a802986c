// Job: what a mixture trains: a tiny model of odd sizes, random tokens, and the settings of its trainers; and
// what one device makes of it.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/capi/c_api.h"
#include "tests/mixtures/words.h"

namespace mixtures {

// The precision decides how far two orders of sums may be apart (run.h).
enum class Rounding : uint8_t { kF32, kTf32, kFp8, kBf16Weights };

using Values = std::map<std::string, std::vector<float>>;

// The steps of a trainer: two steps, an evaluation, two more steps, an evaluation.
struct Course {
  std::vector<double> losses;
  Values gradients;  // first moments after the first step: a constant factor off
  Values middle, end;
  double middle_loss = 0, end_loss = 0;  // evaluated
};
constexpr int kStepsAStretch = 2;

struct Job {
  std::string description;
  std::vector<capi_test::Setting> settings;
  int64_t layers = 1, heads = 1, experts = 1, vocabulary = 2, batch = 1, seq = 1;
  Rounding rounding = Rounding::kF32;
  bool routes = false;       // experts: a number next to another may be ranked the other way
  int64_t adapter_rank = 0;  // 0: none
  capi_test::Model model;
  capi_test::Dataset data;
  std::vector<std::string> parameters, stored;  // those and their optimizer state, once a run has found it
  std::unique_ptr<Course> one_device;           // made when first asked for

  std::string text() const;
};

// The model with the job's adapters; of rank 1 where one of its weights is too small for more.
capi_test::Model with_adapters(const capi_test::Model& model, Job& job);

// One that the mixture fits: enough layers for its stages, experts where it spreads them.
Job draw_job(const Mixture& mixture, Dice& dice);
bool suits(const Job& job, const Mixture& mixture);
// The same with other weights and other data.
Job other_data(const Job& job);

// A mixture with its numbers, as the job admits them; one in twenty with one that it may not.
struct Layout {
  std::string words;
  int64_t devices = 1;
};
Layout layout_for(const Mixture& mixture, const Job& job, Dice& dice);

}  // namespace mixtures
