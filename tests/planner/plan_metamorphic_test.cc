// The properties of metamorphic_test.cc for make_plan, on lowered programs of a small training step. Its
// search states a gap; times are compared within it, bounds without.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "graph/base/text.h"
#include "parallel/lowering/lower.h"
#include "parallel/planner/planner.h"
#include "tests/fake_cluster.h"
#include "tests/parallel/step_graphs.h"
#include "tests/reordered_graph.h"

using namespace tessera;

namespace {

// Every kernel takes `scale` times as long.
class ScaledCatalog final : public KernelCatalog {
 public:
  explicit ScaledCatalog(double scale) : scale_(scale) {}
  Result<KernelChoice> query(const OpDef& op, const OpView& view) const override {
    TSR_ASSIGN_OR_RETURN(KernelChoice choice, FakeCatalog().query(op, view));
    choice.seconds *= scale_;
    return choice;
  }
  uint64_t fingerprint() const override { return 8; }

 private:
  double scale_;
};

struct Question {
  Graph step;
  Cluster cluster;
  PlanOptions options;
  double scale = 1;
};

Question question(int devices, double link_bytes_per_s = 2e9) {
  Question it{training_step("gpt2:L=2,C=32,H=4,V=64,T=32").value(), {}, {}, 1};
  it.cluster = fake_cluster(devices, {link_bytes_per_s, 2e-6}, 1e11);
  it.options.global_batch = 8;
  it.options.symbols = {{"T", 32}};
  return it;
}

PlanResult answer(const Question& it) {
  auto planned = make_plan(it.step, it.cluster, ScaledCatalog(it.scale), it.options);
  REQUIRE_MESSAGE(planned.ok(), planned.status().to_string());
  return std::move(*planned);
}

// The plan of question(4), the base of most tests: planned once.
const PlanResult& answer_on_four() {
  static const PlanResult once = answer(question(4));
  return once;
}

void never_slower(const PlanResult& after, const PlanResult& before, const char* what) {
  CAPTURE(std::string(what));
  const double was = before.plan.estimate.step_time_s;
  CHECK(after.search.bound_s <= was * (1 + 1e-9));
  CHECK(after.plan.estimate.step_time_s * (1 - std::max(0.0, after.search.gap)) <= was * (1 + 1e-9));
}

int64_t largest(const PlanResult& result) { return std::ranges::max(result.plan.estimate.arena_bytes); }

// The same graph under other names; with its nodes in another order that is topological, too, if asked for.
Graph renamed(const Graph& graph, bool reorder, std::string_view blocks = "block") {
  Graph other;
  for (const Symbol& symbol : graph.symbols()) other.symbol(symbol.name, symbol.capacity);
  std::vector<TensorId> now(graph.tensors().size(), kNoTensor);
  for (size_t i = 0; i < graph.tensors().size(); ++i) {
    const size_t t = reorder ? graph.tensors().size() - 1 - i : i;
    const Tensor& tensor = graph.tensors()[t];
    if (tensor.kind == TensorKind::kActivation) continue;
    now[t] = other.add_tensor("renamed." + tensor.name, tensor.type, tensor.kind).value();
    if (tensor.kind == TensorKind::kParameter) other.set_trainable(now[t], tensor.trainable);
  }
  std::vector<NodeId> place(graph.nodes().size(), kNoNode);
  for (size_t done = 0; done < graph.nodes().size();) {
    // Among ready nodes the last in the old order, or the first.
    for (size_t i = 0; i < graph.nodes().size(); ++i) {
      const size_t n = reorder ? graph.nodes().size() - 1 - i : i;
      const Node& node = graph.nodes()[n];
      const bool ready =
          place[n] == kNoNode && (node.forward == kNoNode || place[index(node.forward)] != kNoNode) &&
          std::ranges::all_of(node.inputs, [&](TensorId id) { return now[index(id)] != kNoTensor; });
      if (!ready) continue;
      std::vector<TensorId> inputs;
      for (const TensorId id : node.inputs) inputs.push_back(now[index(id)]);
      const std::string_view scope = node.scope;
      other.set_scope(scope.starts_with("block.") ? format("{}{}", blocks, scope.substr(5)) : node.scope);
      other.set_phase(node.phase, node.forward == kNoNode ? kNoNode : place[index(node.forward)]);
      const auto outputs = other.add_node(node.op->name, inputs, node.attrs).value();
      for (size_t o = 0; o < outputs.size(); ++o) now[index(node.outputs[o])] = outputs[o];
      place[n] = NodeId{static_cast<uint32_t>(other.nodes().size() - 1)};
      ++done;
      break;
    }
  }
  for (const NamedTensor& output : graph.outputs())
    REQUIRE(other.add_output(output.name, now[index(output.tensor)]).ok());
  for (const Update& update : graph.updates())
    other.add_update(now[index(update.target)], now[index(update.value)]);
  for (const Gradient& it : graph.gradients())
    other.add_gradient(now[index(it.parameter)], now[index(it.gradient)]);
  return other;
}

}  // namespace

TEST_SUITE("metamorphic plans") {
  TEST_CASE("more memory: the planned step never takes longer") {
    Question it = question(2);
    const int64_t free = largest(answer(it));
    PlanResult last;
    bool any = false;
    for (const double share : {0.6, 0.8, 1.0, 2.0}) {
      it.options.memory_limit = static_cast<int64_t>(share * static_cast<double>(free));
      const auto planned = make_plan(it.step, it.cluster, ScaledCatalog(1), it.options);
      if (!planned.ok()) {
        CHECK_FALSE(any);
        continue;
      }
      CHECK(largest(*planned) <= it.options.memory_limit);
      if (any) never_slower(*planned, last, "memory");
      last = *planned, any = true;
    }
    CHECK(any);
  }

  TEST_CASE("more bandwidth, less latency, faster kernels: the planned step never takes longer") {
    const Question it = question(4);
    const PlanResult& now = answer_on_four();
    Question better = it;
    better.cluster.link.bytes_per_s *= 4;
    never_slower(answer(better), now, "bandwidth");
    better = it;
    better.cluster.link.latency_s /= 4;
    never_slower(answer(better), now, "latency");
    better = it;
    better.scale = 0.5;
    never_slower(answer(better), now, "kernels");
  }

  TEST_CASE("more devices that share nothing: the planned step never takes longer") {
    for (const double rate : {2e8, 1e10}) {
      PlanResult last = answer(question(1, rate));
      for (const int devices : {2, 3, 4}) {
        PlanResult now = answer(question(devices, rate));
        never_slower(now, last, "devices");
        last = std::move(now);
      }
    }
  }

  TEST_CASE("a larger set of options: the planned step never takes longer") {
    const Question it = question(4);
    const PlanResult& free = answer_on_four();
    for (const char* words : {"dp=4", "tp=4", "dp=2,tp=2", "tp=2,sp", "zero=3", "pp=2", "recompute=full"}) {
      Question pinned = it;
      pinned.options.parallel = words;
      const auto planned = make_plan(pinned.step, pinned.cluster, ScaledCatalog(1), pinned.options);
      if (planned.ok()) never_slower(free, *planned, words);
    }
  }

  TEST_CASE("infinite bandwidth: no time goes into communication") {
    Question it = question(4);
    it.cluster.link = {1e30, 0};
    const PlanResult found = answer(it);
    CHECK(found.plan.estimate.communication_s < 1e-9);
    CHECK(found.plan.estimate.step_time_s <= answer(question(1)).plan.estimate.step_time_s);
  }

  TEST_CASE("relabelled devices, renamed tensors: the same plan and time") {
    const Question it = question(4);
    const PlanResult& now = answer_on_four();
    Question relabelled = it;
    relabelled.cluster.kinds[0].name = "another name";
    relabelled.cluster.kinds.push_back(relabelled.cluster.kinds[0]);  // the same kind once more
    std::ranges::fill(relabelled.cluster.devices, 1);
    CHECK(answer(relabelled).plan.estimate.step_time_s == now.plan.estimate.step_time_s);
    Question other = it;
    other.step = renamed(it.step, false);
    REQUIRE(other.step.verify().ok());
    const PlanResult same = answer(other);
    CHECK(same.plan.strategy == now.plan.strategy);
    CHECK(same.plan.nodes == now.plan.nodes);
    CHECK(same.plan.estimate.step_time_s == now.plan.estimate.step_time_s);
    other.step = renamed(it.step, false, "decoder.layers");
    const PlanResult scoped = answer(other);
    CHECK(scoped.plan.strategy == now.plan.strategy);
    CHECK(scoped.plan.estimate.step_time_s == now.plan.estimate.step_time_s);
    CHECK(scoped.search.configurations == now.search.configurations);
  }

  TEST_CASE("renamed operations under a tight limit: the same set to recompute, the same time and bytes") {
    Question it = question(2);
    it.options.memory_limit = largest(answer(it)) * 7 / 10;
    const PlanResult now = answer(it);
    Question other = it;
    other.step = renamed(it.step, false, "decoder.layers");
    const PlanResult same = answer(other);
    CHECK(same.plan.strategy == now.plan.strategy);
    CHECK(same.plan.recompute.size() == now.plan.recompute.size());  // ids are the graph's
    CHECK(same.plan.estimate == now.plan.estimate);
  }

  // A step's own order is that of autodiff, which follows the model's; the model's is made to follow from its
  // structure.
  TEST_CASE("another topological order of the model, other names: the same strategy, time and arena") {
    std::mt19937 random(17);
    for (const char* model : {"gpt2:L=2,C=32,H=4,V=64,T=32", "llama:L=2,C=32,H=4,KV=2,F=64,V=64,T=32",
                              "moe:L=1,C=32,H=4,KV=2,F=48,E=2,K=1,V=64,T=32"}) {
      Graph forward = build_model(parse_shorthand(model).value()).value();
      REQUIRE(add_token_loss(forward).ok());
      for (const int devices : {1, 2, 4}) {
        CAPTURE(model);
        CAPTURE(devices);
        Question it = question(devices);
        it.step = make_training_step(forward, {}).value();
        const PlanResult now = answer(it);
        Question other = it;
        other.step = make_training_step(test::reordered(forward, random, true).value(), {}).value();
        const PlanResult then = answer(other);
        CHECK(then.plan.strategy == now.plan.strategy);
        CHECK(then.plan.nodes == now.plan.nodes);
        CHECK(then.plan.estimate == now.plan.estimate);
        CHECK(then.search.bound_s == now.search.bound_s);
        CHECK(other.step.fingerprint() == it.step.fingerprint());
      }
    }
  }

  TEST_CASE("a kind that no device is of changes nothing; one that is not listed is refused") {
    Question it = question(4);
    const PlanResult& now = answer_on_four();
    DeviceKind slow = it.cluster.kinds[0];
    slow.name = "slow", slow.memory_bytes = 1;
    it.cluster.kinds.insert(it.cluster.kinds.begin(), slow);
    it.cluster.devices = {1, 1, 1, 1};
    const PlanResult same = answer(it);
    CHECK(same.plan.strategy == now.plan.strategy);
    CHECK(same.plan.stages == now.plan.stages);
    CHECK(same.plan.estimate == now.plan.estimate);
    it.cluster.devices = {1, 7};
    CHECK(make_plan(it.step, it.cluster, ScaledCatalog(1), it.options).status().code() ==
          StatusCode::kInvalidArgument);
  }

  TEST_CASE("additional devices of another kind: the planned step never takes longer") {
    Question it = question(2);
    const PlanResult alone = answer(it);
    Question more = it;
    DeviceKind other = it.cluster.kinds[0];
    other.name = "other", other.launch_s *= 50, other.memory_bytes_per_s /= 50;
    more.cluster.kinds.push_back(other);
    // Between them, so that ranks are not devices.
    more.cluster.devices = {1, 0, 1, 0};
    const PlanResult now = answer(more);
    CHECK(now.plan.estimate.step_time_s <= alone.plan.estimate.step_time_s);
    CHECK(now.search.bound_s <= alone.search.bound_s);
    CHECK(now.search.bound_s <= now.plan.estimate.step_time_s);
    // The plan keeps the gap of all choices, not of the one that it is of.
    CHECK(now.plan.estimate.gap == now.search.gap);
    CHECK(now.search.gap == doctest::Approx(1 - now.search.bound_s / now.plan.estimate.step_time_s));
    REQUIRE(now.plan.estimate.arena_bytes.size() == 4);
    // Each device used has an arena, and no other.
    std::vector<bool> used(4, false);
    for (const Stage& stage : now.plan.stages)
      for (const int32_t device : stage.mesh.devices) used[static_cast<size_t>(device)] = true;
    for (size_t d = 0; d < 4; ++d) CHECK((now.plan.estimate.arena_bytes[d] > 0) == used[d]);
    // The program is of these very ranks.
    const EntrySpec entry{"step", &it.step, &now.plan};
    const auto program = lower(std::span(&entry, 1), ScaledCatalog(1));
    REQUIRE(program.ok());
    for (size_t d = 0; d < program->ranks.size(); ++d)
      CHECK(program->ranks[d].arena_bytes == now.plan.estimate.arena_bytes[d]);
  }

  TEST_CASE("kinds in another order, kinds that stay idle taken away: the same step") {
    Question it = question(4);
    DeviceKind tiny = it.cluster.kinds[0];
    tiny.name = "tiny", tiny.memory_bytes = 1;
    it.cluster.kinds.push_back(tiny);
    it.cluster.devices = {0, 0, 1, 1};
    const PlanResult now = answer(it);
    it.cluster.devices = {1, 1, 0, 0};
    const PlanResult turned = answer(it);
    CHECK(turned.plan.strategy == now.plan.strategy);
    CHECK(turned.plan.estimate.step_time_s == now.plan.estimate.step_time_s);
    CHECK(std::ranges::equal(turned.plan.stages[0].mesh.devices, std::vector<int32_t>{2, 3}) ==
          std::ranges::equal(now.plan.stages[0].mesh.devices, std::vector<int32_t>{0, 1}));
    // Nothing fits the tiny ones, which so stay idle.
    it.cluster = question(2).cluster;
    const PlanResult without = answer(it);
    CHECK(without.plan.strategy == now.plan.strategy);
    CHECK(without.plan.estimate.step_time_s == now.plan.estimate.step_time_s);
    CHECK(now.plan.estimate.arena_bytes[2] == 0);
  }

  TEST_CASE("all times scaled by c: the same plan, c times as long") {
    const Question it = question(4);
    const PlanResult& now = answer_on_four();
    Question scaled = it;
    const double c = 8;  // whole nanoseconds are rounded, and hardly matter where there are more of them
    scaled.scale = c;
    scaled.cluster.link.bytes_per_s /= c, scaled.cluster.link.latency_s *= c;
    scaled.cluster.kinds[0].memory_bytes_per_s /= c, scaled.cluster.kinds[0].matmul_flops_per_s /= c;
    scaled.cluster.kinds[0].launch_s *= c;
    const PlanResult other = answer(scaled);
    CHECK(other.plan.strategy == now.plan.strategy);
    CHECK(other.plan.nodes == now.plan.nodes);
    CHECK(other.plan.stored == now.plan.stored);
    CHECK(other.plan.estimate.step_time_s ==
          doctest::Approx(c * now.plan.estimate.step_time_s).epsilon(1e-3));
  }

  TEST_CASE("an option taken away that the plan does not use: the same time") {
    const Question it = question(4);
    const PlanResult& free = answer_on_four();
    Question pinned = it;
    pinned.options.parallel = free.plan.strategy == "single" ? "dp=1,tp=1" : free.plan.strategy;
    CHECK(answer(pinned).plan.estimate.step_time_s == free.plan.estimate.step_time_s);
  }

  TEST_CASE("the same question: the same bytes of plan") {
    const Question it = question(4);
    const PlanResult &a = answer_on_four(), b = answer(it);
    CHECK(print(a.plan, it.step) == print(b.plan, it.step));
    CHECK(a.search.bound_s == b.search.bound_s);
  }

  TEST_CASE("one device: the time of the plain sum of its kernels") {
    const PlanResult one = answer(question(1));
    CHECK(one.plan.strategy == "single");
    CHECK(one.plan.estimate.communication_s == 0);
    CHECK(one.plan.estimate.step_time_s == doctest::Approx(one.plan.estimate.compute_s).epsilon(1e-4));
  }
}
