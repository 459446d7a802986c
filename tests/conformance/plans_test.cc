// Plans changed by hand: choices of one op, one parameter or one tensor that no words of --parallel make.
#include <doctest/doctest.h>

#include <algorithm>
#include <random>

#include "graph/base/text.h"
#include "parallel/sharding/node_sharding.h"
#include "parallel/sharding/schedule.h"
#include "tests/conformance/parity_forms.h"
#include "tests/conformance/parity_harness.h"
#include "tests/conformance/plan_edits.h"

using namespace tessera;
using namespace tessera::parity;

namespace {

constexpr std::string_view kGpt2 = "gpt2:L=2,C=32,H=8,V=61,T=16";
constexpr std::string_view kLlama = "llama:L=2,C=32,H=8,KV=4,F=52,V=61,T=16,tied=0";

std::string_view parameter_behind(const Graph& step, std::string_view name) {
  for (const TensorId id : step.tensors_of_kind(TensorKind::kParameter)) {
    const std::string& known = step.tensor(id).name;
    if (name == known || (name.starts_with(known) && name.substr(known.size()).starts_with('.')))
      return known;
  }
  return {};
}

// Operator-wise sharded data parallelism: the parameters that `chosen` names (with gradient, state and
// update) as the plan of `words` has them, all else as it is. Both plans have the same mesh.
PlanEdit some_parameters_as(const Job& job, std::string words, std::function<bool(std::string_view)> chosen) {
  return [=](const Graph& step, Plan& plan) -> Status {
    TSR_ASSIGN_OR_RETURN(const Plan other, plan_of(step, job, words));
    if (plan.stages != other.stages || plan.micro_batches != other.micro_batches)
      return Status(StatusCode::kInternal, "the two plans have different meshes");
    std::vector<std::string_view> owner(step.tensors().size());
    for (size_t t = 0; t < owner.size(); ++t)
      if (step.tensors()[t].kind == TensorKind::kParameter || step.tensors()[t].kind == TensorKind::kState)
        owner[t] = parameter_behind(step, step.tensors()[t].name);
    for (const Gradient& gradient : step.gradients())
      owner[index(gradient.gradient)] = step.tensor(gradient.parameter).name;
    for (StoredTensor& stored : plan.stored)
      if (const std::string_view name = owner[index(stored.tensor)]; !name.empty() && chosen(name))
        stored = *other.find_stored(stored.tensor);
    for (size_t n = 0; n < plan.nodes.size(); ++n) {
      const Node& node = step.nodes()[n];
      if (node.phase != Phase::kUpdate) continue;
      for (const TensorId input : node.inputs)
        if (const std::string_view name = owner[index(input)]; !name.empty() && chosen(name))
          plan.nodes[n] = other.nodes[n];
    }
    return {};
  };
}

// A random set of forward results that backward reads.
PlanEdit recompute_some(uint32_t seed, uint32_t percent) {
  return [=](const Graph& step, Plan& plan) -> Status {
    std::mt19937 random(seed);
    std::vector<TensorId> saved;
    for (const Node& node : step.nodes())
      if (node.phase == Phase::kBackwardInput || node.phase == Phase::kBackwardWeight)
        for (size_t i = 0; i < node.inputs.size(); ++i) {
          const Tensor& tensor = step.tensor(node.inputs[i]);
          if (reads_input(node, i) && tensor.producer != kNoNode &&
              step.node(tensor.producer).phase == Phase::kForward)
            saved.push_back(node.inputs[i]);
        }
    std::ranges::sort(saved);
    saved.erase(std::ranges::unique(saved).begin(), saved.end());
    for (const TensorId id : saved)
      if (random() % 100 < percent) plan.recompute.push_back(id);
    if (plan.recompute.empty() && !saved.empty()) plan.recompute.push_back(saved.front());
    return {};
  };
}

}  // namespace

TEST_SUITE("parity plans") {
  TEST_CASE("zero for some parameters only trains as one device does") {
    print_header();
    const Job job{.model = std::string(kGpt2)};
    const auto feed_forward = [](std::string_view name) {
      return name.find(".fc") != name.npos || name.find(".proj") != name.npos;
    };
    const auto attention = [&](std::string_view name) {
      return !feed_forward(name) && name.starts_with("block");
    };
    const auto odd = [](std::string_view name) { return name.size() % 2 == 1; };
    struct Mix {
      std::string words, other, what;
      std::function<bool(std::string_view)> chosen;
    };
    const std::vector<Mix> mixes = {
        {"dp=2", "dp=2,zero=3", "feed-forward", feed_forward},
        {"dp=2", "dp=2,zero=3", "attention", attention},
        {"dp=3,mb=2", "dp=3,zero=3,mb=2", "every other", odd},
        {"dp=3,zero=1,mb=2", "dp=3,zero=2,mb=2", "every other", odd},
        {"dp=2,zero=2,mb=3", "dp=2,zero=3,mb=3", "attention", attention},
        {"dp=2,tp=2,sp", "dp=2,tp=2,sp,zero=3", "feed-forward", feed_forward},
    };
    for (const Mix& mix : mixes)
      check(measure(job, mix.words, some_parameters_as(job, mix.other, mix.chosen),
                    format("{}, {} as {}", mix.words, mix.what, mix.other)));
  }

  TEST_CASE("any set of activations may be computed again") {
    print_header();
    uint32_t seed = 1;
    for (const std::string_view words :
         {"single", "mb=4", "dp=2,zero=3", "tp=2,sp", "dp=2,tp=2,sp,zero=2,mb=3"})
      for (const uint32_t percent : {20u, 60u, 100u})
        check(measure({.model = std::string(percent == 60 ? kLlama : kGpt2)}, words,
                      recompute_some(seed++, percent), format("{}, recompute {} %", words, percent)));
    check(measure({.model = std::string(kGpt2), .dropout = 0.2}, "dp=2", recompute_some(77, 80),
                  "dp=2, dropout, recompute 80 %"));
  }

  TEST_CASE("products in one to eight chunks train as one device does") {
    print_header();
    for (int32_t g = 1; g <= 8; ++g)
      check(measure({.model = std::string(g % 2 == 0 ? kLlama : kGpt2)},
                    g % 3 == 0 ? "dp=3,zero=3" : "dp=2,zero=3,mb=3", chunk_products(g),
                    format("dp={},zero=3, {} chunks", g % 3 == 0 ? 3 : 2, g)));
    for (const int32_t g : {2, 3, 7})
      check(measure({.model = std::string(kGpt2)}, "single", chunk_products(g),
                    format("single, {} chunks", g)));
  }
}
