#include "tests/conformance/parity_forms.h"

#include <cstdlib>
#include <random>

#include "graph/base/text.h"
#include "tests/full.h"

namespace tessera::parity {

namespace {

constexpr Needs kAny = Needs::kNothing;
constexpr bool kFull = false;

const std::vector<Form> kForms = {
    // Data parallel; the batch of 12 is uneven on 5 and 8.
    {"dp=2", 2},
    {"dp=3", 3, kAny, kFull},
    {"dp=4", 4, kAny, kFull},
    {"dp=5", 5},
    {"dp=6", 6, kAny, kFull},
    {"dp=8", 8},
    {"mb=4", 1},
    {"dp=2,mb=1", 2},
    // Sharded data.
    {"dp=2,zero=1", 2},
    {"dp=3,zero=1,mb=2", 3},
    {"dp=2,zero=2,mb=2", 2},
    {"dp=5,zero=2", 5},
    {"dp=2,zero=3", 2},
    {"dp=3,zero=3,mb=1", 3},
    {"dp=4,zero=3,mb=1", 4, kAny, kFull},
    {"dp=6,zero=3,mb=1", 6, kAny, kFull},
    {"dp=8,zero=3", 8},
    {"dp=4,zero=3:2,mb=1", 4},
    {"dp=6,zero=3:2", 6, kAny, kFull},
    {"dp=6,zero=3:3,mb=1", 6},
    // Large weights over dp instead of the batch.
    {"dp=3,mb=1,owt", 3},
    {"dp=2,tp=2,zero=2,mb=1,owt", 4},
    {"dp=8,zero=3:4", 8, kAny, kFull},
    // Tensor parallel in one dimension: 8 heads on 3, 5 and 6 are uneven.
    {"tp=2", 2},
    {"tp=3", 3},
    {"tp=4", 4, kAny, kFull},
    {"tp=2,sp", 2},
    {"tp=3,sp", 3},
    {"tp=4,sp", 4},
    {"tp=8", 8},  // more than the KV heads of the llama and moe stacks
    {"tp=8,sp,zero=1", 8, kAny, kFull},
    {"dp=2,tp=2,sp,zero=3,mb=2", 4},
    {"dp=2,tp=3,sp,zero=1", 6},
    {"dp=2,tp=4,sp,zero=2", 8, kAny, kFull},
    // The same in more dimensions.
    {"tp=2d:2x2", 4},
    {"tp=2d:2x3", 6},
    {"tp=2d:3x2", 6, kAny, kFull},
    {"tp=2d:2x4", 8},
    {"tp=2d:4x2", 8, kAny, kFull},
    {"dp=2,tp=2d:2x2", 8},
    {"tp=2.5d:2x2x2", 8},
    {"tp=3d:2x2x2", 8},
    // Context.
    {"cp=ring:2", 2},
    {"cp=ring:3", 3},
    {"cp=ring:4", 4},
    {"cp=ring:5", 5, kAny, kFull},
    {"cp=ring:6", 6, kAny, kFull},
    {"cp=ring:8", 8, kAny, kFull},
    {"cp=ulysses:2", 2},
    {"cp=ulysses:3", 3},
    {"cp=ulysses:4", 4},
    {"cp=ring:2,tp=2", 4},
    {"cp=ring:2,tp=2,sp", 4},
    {"cp=ring:3,tp=2", 6, kAny, kFull},
    {"cp=ring:2:contiguous", 2},
    {"cp=ring:4:contiguous", 4},
    {"cp=ring:3:contiguous,tp=2,sp", 6, kAny, kFull},
    {"dp=2,cp=ring:4:contiguous,zero=3", 8, kAny, kFull},
    {"cp=gather:2", 2},
    {"cp=gather:3:contiguous", 3, kAny, kFull},
    {"cp=ulysses:2,tp=2", 4},
    {"cp=ulysses:2,tp=2,sp", 4, kAny, kFull},
    {"dp=2,cp=ring:2,zero=3", 4},
    {"dp=2,cp=ring:2,tp=2", 8},
    {"dp=2,cp=ulysses:2,tp=2,sp,zero=2", 8, kAny, kFull},
    // Chunks.
    {"dp=2,zero=3,chunks=2", 2},
    {"dp=3,zero=3,chunks=4,mb=2", 3},
    {"dp=2,zero=3,chunks=8", 2, kAny, kFull},
    {"tp=2d:2x2,chunks=3", 4},
    {"tp=3d:2x2x2,chunks=2", 8},
    // Kept rather than gathered again.
    {"tp=2,sp,keep", 2},
    {"dp=2,zero=3,mb=3,keep", 2},
    {"tp=2d:2x2,keep", 4},
    {"tp=3d:2x2x2,keep", 8, kAny, kFull},
    // Recomputation.
    {"recompute=full", 1},
    {"dp=2,recompute=full", 2},
    {"tp=2,sp,recompute=full", 2},
    {"dp=2,zero=3,mb=3,recompute=full", 2},
    {"tp=2d:2x2,recompute=full", 4},
    {"cp=ring:2,recompute=full", 2},
    // Offload.
    {"offload=optimizer", 1},
    {"offload=params", 1},
    {"offload=grads", 1},
    {"offload=activations", 1},
    {"dp=2,zero=1,offload=optimizer", 2},
    {"dp=2,zero=3,offload=params", 2},
    {"dp=2,zero=2,mb=2,offload=grads", 2},
    {"dp=2,tp=2,offload=activations", 4},
    {"dp=2,offload=optimizer@file", 2},
    {"mb=4,offload=grads@file", 1},
    {"dp=2,offload=activations@file", 2, kAny, kFull},
    // Pipelines.
    {"pp=2:gpipe,mb=3", 2, Needs::kLayers},
    {"pp=2:1f1b,mb=3", 2, Needs::kLayers},
    {"pp=3:1f1b,mb=2", 3, Needs::kLayers},
    {"pp=4:gpipe,mb=2", 4, Needs::kLayers, kFull},
    {"pp=4:1f1b,mb=2", 4, Needs::kLayers},
    {"pp=5:1f1b,mb=2", 5, Needs::kManyLayers, kFull},
    {"pp=6:1f1b,mb=2", 6, Needs::kManyLayers, kFull},
    {"pp=8:1f1b,mb=1", 8, Needs::kManyLayers, kFull},
    {"pp=2:interleaved:2,mb=2", 2, Needs::kLayers},
    {"pp=2:interleaved:2,mb=4", 2, Needs::kLayers},  // 3 micro-batches: not a multiple of the stages
    {"pp=4:interleaved:2,mb=2", 4, Needs::kManyLayers, kFull},
    {"pp=2:zb-h1,mb=2", 2, Needs::kLayers},
    {"pp=4:zb-h1,mb=2", 4, Needs::kLayers, kFull},
    {"pp=2:zb-h2,mb=2", 2, Needs::kLayers},
    {"pp=4:zb-h2,mb=2", 4, Needs::kLayers, kFull},
    {"pp=2:zb-v,mb=2", 2, Needs::kLayers},
    {"pp=4:zb-v,mb=1", 4, Needs::kManyLayers, kFull},
    {"dp=2,pp=2:1f1b,mb=2", 4, Needs::kLayers},
    {"dp=2,pp=2:1f1b,zero=2,mb=1", 4, Needs::kLayers},
    {"dp=2,pp=2:zb-h1,zero=3,mb=1", 4, Needs::kLayers},
    {"tp=2,pp=2:1f1b,mb=3", 4, Needs::kLayers},
    {"tp=2,sp,pp=2:interleaved:2,mb=3", 4, Needs::kLayers, kFull},
    {"tp=2d:2x2,pp=2:1f1b,mb=6", 8, Needs::kLayers, kFull},
    {"cp=ring:2,pp=2:1f1b,mb=4", 4, Needs::kLayers, kFull},
    {"dp=2,tp=2,pp=2:1f1b,mb=3", 8, Needs::kLayers},
    // Experts.
    {"ep=2", 2, Needs::kExperts},
    {"ep=4", 4, Needs::kExperts},
    {"dp=2,ep=2", 4, Needs::kExperts},
    {"dp=2,ep=2,zero=3", 4, Needs::kExperts},
    {"ep=2,tp=2", 4, Needs::kExperts},
    {"ep=2,mb=3", 2, Needs::kExperts},
};

// Uniform over the list; the same on every machine (std::uniform_int_distribution is not).
class Dice {
 public:
  explicit Dice(uint32_t seed) : random_(seed) {}
  uint32_t below(uint32_t n) { return static_cast<uint32_t>(random_() % n); }
  template <class T>
  const T& one_of(const std::vector<T>& list) {
    return list[below(static_cast<uint32_t>(list.size()))];
  }

 private:
  std::mt19937 random_;
};

Form mixture(Dice& dice) {
  struct Part {
    std::string words;
    int32_t devices;
  };
  const std::vector<Part> tensor = {
      {"", 1},           {"", 1},        {"tp=2", 2},      {"tp=2,sp", 2},   {"tp=3", 3},
      {"tp=3,sp", 3},    {"tp=4,sp", 4}, {"tp=2d:2x2", 4}, {"tp=2d:2x3", 6}, {"tp=2.5d:2x2x2", 8},
      {"tp=3d:2x2x2", 8}};
  const std::vector<Part> context = {
      {"", 1}, {"", 1}, {"cp=ring:2", 2}, {"cp=ring:3", 3}, {"cp=ulysses:2", 2}};
  const std::vector<Part> pipe = {
      {"", 1},           {"", 1},           {"", 1},          {"pp=2:1f1b", 2},
      {"pp=2:gpipe", 2}, {"pp=2:zb-h1", 2}, {"pp=3:1f1b", 3}, {"pp=2:interleaved:2", 2},
      {"pp=4:zb-h2", 4}, {"pp=2:zb-v", 2}};
  for (;;) {
    const Part t = dice.one_of(tensor), c = dice.one_of(context), p = dice.one_of(pipe);
    const int32_t dp = dice.one_of(std::vector<int32_t>{1, 2, 2, 3, 4});
    const bool experts = dice.below(5) == 0;
    const int32_t ep = experts ? 2 : 1;
    const int32_t devices = t.devices * c.devices * p.devices * dp * ep;
    const int kinds = (t.devices > 1) + (c.devices > 1) + (p.devices > 1) + (dp > 1) + (ep > 1);
    if (devices < 2 || devices > 8 || kinds < 1) continue;
    // Experts are spread over their own axis, outside pipelines and grids of tensor parallelism.
    if (ep > 1 && (p.devices > 1 || t.devices > 2)) continue;

    std::vector<std::string> words;
    if (dp > 1) words.push_back(format("dp={}", dp));
    for (const Part& part : {t, c, p})
      if (!part.words.empty()) words.push_back(part.words);
    if (ep > 1) words.push_back("ep=2");
    const bool sharded = dp > 1 && dice.below(3) > 0;
    const int32_t zero = sharded ? 1 + static_cast<int32_t>(dice.below(3)) : 0;
    if (sharded)
      words.push_back(zero == 3 && dp == 4 && dice.below(2) == 0 ? "zero=3:2" : format("zero={}", zero));
    const int64_t each = 12 / (dp * ep);  // 12 sequences a step
    const int64_t parts = p.devices > 1 ? std::min<int64_t>(each, 4) : dice.below(2) == 0 ? 1 : 2;
    if (each % parts == 0 && parts > 1) words.push_back(format("mb={}", each / parts));
    if ((zero == 3 || t.words.find("2d") != std::string::npos) && dice.below(3) == 0)
      words.push_back(format("chunks={}", 2 + dice.below(3)));
    if (dice.below(4) == 0) words.push_back("recompute=full");
    const Needs needs = experts                                                    ? Needs::kExperts
                        : p.words.find(":2") != std::string::npos || p.devices > 1 ? Needs::kLayers
                                                                                   : Needs::kNothing;
    return {join(words, ","), devices, needs};
  }
}

constexpr std::string_view kGpt2 = "gpt2:L=4,C=32,H=8,V=61,T=16";
constexpr std::string_view kMoe = "moe:L=1,C=16,H=4,KV=2,F=24,E=4,K=1,V=40,T=13";

const std::vector<Refusal> kRefusals = {
    {"tp=16", kGpt2, "tp=8"},
    {"tp=16,sp", kGpt2, "tp=8"},
    {"tp=2d:2x16", kGpt2, "tp=2d:2x8"},
    {"tp=2.5d:2x3x2", kGpt2, "tp=2.5d:2x2x2"},
    {"tp=3d:2x2x3", kGpt2, "tp=3d:2x2x2"},
    {"dp=13", kGpt2, "dp=12"},
    {"dp=2,mb=5", kGpt2, "divisor of 6"},
    {"dp=4,zero=3:3", kGpt2, "the nearest that does is 2"},
    {"zero=4", kGpt2, "0 to 3"},
    {"cp=ring:20", kGpt2, "up to 13"},
    {"cp=ulysses:14", kGpt2, "up to 13"},
    {"pp=20:1f1b", kGpt2, "pp=4"},
    {"pp=2:interleaved:15", kGpt2, "pp=2 with 2"},
    {"pp=2:1f2b", kGpt2, "1f1b"},
    {"ep=6", kMoe, "ep=4"},
    {"offload=gradz", kGpt2, "grads"},
    {"recompute=half", kGpt2, "full"},
};

}  // namespace

std::span<const Form> forms() { return kForms; }
std::span<const Refusal> refusals() { return kRefusals; }

std::vector<Form> mixtures(int count, uint32_t seed) {
  Dice dice(seed);
  std::vector<Form> result;
  while (static_cast<int>(result.size()) < count) {
    Form form = mixture(dice);
    bool known = false;
    for (const Form& other : result) known = known || other.words == form.words;
    if (!known) result.push_back(std::move(form));
  }
  return result;
}

bool full() { return test::full(); }

}  // namespace tessera::parity
