// The forms of parallelism as data: words of --parallel, how many devices they take, which models they speak
// of.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::parity {

// The size of model that a form needs.
enum class Needs : uint8_t {
  kNothing,     // two layers are enough
  kLayers,      // four: stages of a pipeline
  kManyLayers,  // eight: many or interleaved stages
  kExperts,     // a mixture of experts
};

struct Form {
  std::string words;
  int32_t devices = 1;
  Needs needs = Needs::kNothing;
  bool always = true;  // in every run of the tests; else with TESSERA_TEST_FULL=1
};

std::span<const Form> forms();

// Random but the same on every machine: mixtures of the forms above on 2 to 8 devices.
std::vector<Form> mixtures(int count, uint32_t seed);

// Words that do not fit a model (batch 12, 13 tokens), and what the refusal must name: the nearest that fits.
struct Refusal {
  std::string words;
  std::string_view model;
  std::string names;
};
std::span<const Refusal> refusals();

bool full();  // TESSERA_TEST_FULL=1

}  // namespace tessera::parity
