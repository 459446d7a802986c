// The low level (graph -> plan -> program -> session) with the graphs that one has: of every model family, their
// decoding and training forms, and random ones in any order of nodes, on one device and on several.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <numeric>
#include <random>

#include "graph/graph.h"
#include "graph/transform/training.h"
#include "small_training.h"
#include "tests/capi/random_graph.h"
#include "tests/full.h"
#include "tests/reordered_graph.h"

using namespace capi_test;
using tessera::DType;
using tessera::TensorKind;

namespace {

Graph handle_of(const tessera::Graph& graph) {
  const std::string text = print(graph);
  tsr_graph* made = nullptr;
  ok(tsr_graph_parse(text.data(), text.size(), &made));
  return Graph(made);
}

tessera::Graph graph_of(const Graph& graph) {
  return tessera::parse_graph(text([&](auto... out) { return tsr_graph_print(graph.get(), out...); })).value();
}

Devices open(const Runtime& runtime, const char* name) {
  tsr_devices* made = nullptr;
  ok(tsr_devices_open(runtime.get(), name, &made));
  return Devices(made);
}

// Deterministic by name: numbers in (-1, 1), ids below 13, the first step.
Tensor value_of(const std::string& name, DType dtype, const std::vector<int64_t>& dims) {
  tsr_tensor* made = nullptr;
  ok(tsr_tensor_new(static_cast<tsr_dtype>(dtype), static_cast<int32_t>(dims.size()), dims.data(), &made));
  uint32_t state = 1;
  for (const char c : name) state = state * 31 + static_cast<unsigned char>(c);
  std::mt19937 random(state);
  const size_t bytes = tsr_tensor_bytes(made);
  void* data = tsr_tensor_writable(made);
  const auto real = [&] {
    return name == "step" ? 1.0 : static_cast<double>(random()) / 2147483648.0 - 1;
  };
  if (dtype == DType::kF64) std::generate_n(static_cast<double*>(data), bytes / 8, real);
  if (dtype == DType::kF32)
    std::generate_n(static_cast<float*>(data), bytes / 4, [&] { return static_cast<float>(real()); });
  if (dtype == DType::kI32)
    std::generate_n(static_cast<int32_t*>(data), bytes / 4, [&] { return static_cast<int32_t>(random() % 13); });
  return Tensor(made);
}

std::vector<double> numbers(const tsr_tensor* tensor) {
  const void* data = tsr_tensor_data(tensor);
  const size_t bytes = tsr_tensor_bytes(tensor);
  if (tsr_tensor_dtype(tensor) == TSR_F64)
    return {static_cast<const double*>(data), static_cast<const double*>(data) + bytes / 8};
  if (tsr_tensor_dtype(tensor) == TSR_F32)
    return {static_cast<const float*>(data), static_cast<const float*>(data) + bytes / 4};
  return {static_cast<const int32_t*>(data), static_cast<const int32_t*>(data) + bytes / 4};
}

using Values = std::map<std::string, std::vector<double>>;

struct Ran {
  Error refused;  // the plan
  std::string strategy;
  Values values;  // outputs, and what a training step left in parameters and state
};

struct Symbols {
  int64_t B = 6, T = 4;
};

std::vector<int64_t> extents(const tessera::Graph& graph, const tessera::Shape& shape, Symbols bound) {
  std::vector<int64_t> dims;
  for (const int64_t extent : shape.dims())
    dims.push_back(!tessera::is_symbol(extent) ? extent
                   : graph.symbols()[static_cast<size_t>(tessera::symbol_index(extent))].name == "B" ? bound.B
                                                                                                      : bound.T);
  return dims;
}

// Plans, runs once with values that follow from names, and fetches every output.
Ran run(const Runtime& runtime, const tessera::Graph& graph, const char* devices_text, const char* parallel,
        Symbols bound = {}) {
  Ran ran;
  const Devices devices = open(runtime, devices_text);
  const Graph handle = handle_of(graph);
  const bool has_sequence =
      std::ranges::any_of(graph.symbols(), [](const tessera::Symbol& symbol) { return symbol.name == "T"; });
  Options chosen = options({{"batch", bound.B}, {"parallel", std::string(parallel)}});
  if (has_sequence) ok(tsr_options_set_str(chosen.get(), "symbols", ("T=" + std::to_string(bound.T)).c_str()));
  tsr_plan* plan_raw = nullptr;
  ran.refused = take(tsr_plan_new_for_graph(devices.get(), handle.get(), chosen.get(), &plan_raw));
  if (ran.refused.code != TSR_OK) return ran;
  const Plan plan(plan_raw);
  const std::string info = text([&](auto... out) { return tsr_plan_info(plan.get(), out...); });
  ran.strategy = info.substr(0, info.find("\"predicted"));
  const tsr_entry entry = {sizeof(tsr_entry), "main", handle.get(), plan.get()};
  tsr_program* program_raw = nullptr;
  ok(tsr_program_new(devices.get(), &entry, 1, &program_raw));
  const Program program(program_raw);
  tsr_session* session_raw = nullptr;
  ok(tsr_session_new(program.get(), nullptr, &session_raw));
  const Session session(session_raw);
  const auto trained = [&](const tessera::Tensor& tensor) {
    return tensor.kind == TensorKind::kParameter || tensor.kind == TensorKind::kState;
  };
  for (const tessera::Tensor& tensor : graph.tensors()) {
    if (tensor.kind == TensorKind::kActivation || tensor.kind == TensorKind::kState) continue;
    const Tensor value = value_of(tensor.name, tensor.type.dtype, extents(graph, tensor.type.shape, bound));
    if (tensor.kind == TensorKind::kInput)
      ok(tsr_session_feed(session.get(), "main", tensor.name.c_str(), value.get()));
    else
      ok(tsr_session_write(session.get(), tensor.name.c_str(), value.get()));
  }
  ok(tsr_session_run(session.get(), "main"));
  for (const tessera::NamedTensor& output : graph.outputs()) {
    tsr_tensor* made = nullptr;
    ok(tsr_session_fetch(session.get(), "main", output.name.c_str(), &made));
    ran.values[output.name] = numbers(Tensor(made).get());
  }
  if (!graph.updates().empty())
    for (const tessera::Tensor& tensor : graph.tensors()) {
      if (!trained(tensor)) continue;
      tsr_tensor* made = nullptr;
      ok(tsr_session_read(session.get(), tensor.name.c_str(), &made));
      ran.values[tensor.name] = numbers(Tensor(made).get());
    }
  return ran;
}

double largest_difference(const Values& a, const Values& b) {
  REQUIRE(a.size() == b.size());
  double largest = 0;
  for (const auto& [name, values] : a) {
    const std::vector<double>& others = b.at(name);
    REQUIRE(values.size() == others.size());
    for (size_t i = 0; i < values.size(); ++i) {
      REQUIRE(std::isfinite(values[i]));
      largest = std::max(largest, std::abs(values[i] - others[i]) / std::max(1.0, std::abs(values[i])));
    }
  }
  return largest;
}

const char* const kFamilies[] = {"gpt2:L=2,C=16,H=4,V=13,T=8", "llama:L=2,C=16,H=4,KV=2,F=24,V=13,T=8",
                                 "moe:L=2,C=16,H=4,KV=2,F=12,E=4,K=2,V=13,T=8,capacity=0",
                                 "encoder:L=2,C=16,H=4,V=13,T=8", "mlp:L=2,C=16,F=8,V=13"};

Graph model_graph(const char* description) {
  const Model model = described(description);
  tsr_graph* made = nullptr;
  ok(tsr_model_graph(model.get(), &made));
  return Graph(made);
}

template <class Derive>
Graph derived(const Graph& from, Derive derive) {
  tsr_graph* made = nullptr;
  ok(derive(from.get(), &made));
  return Graph(made);
}

}  // namespace

TEST_CASE("every family's graph, and its training step, runs on the low level, the same on one device and two") {
  const Runtime rt = runtime();
  std::mt19937 random(5);
  for (const char* description : kFamilies) {
    CAPTURE(description);
    const Graph forward = model_graph(description);
    std::vector<tessera::Graph> graphs = {graph_of(forward)};
    if (graphs[0].find_output("logits")) {
      const Graph loss = derived(forward, [](tsr_graph* from, tsr_graph** out) { return tsr_graph_token_loss(from, out); });
      graphs.push_back(graph_of(derived(loss, [](tsr_graph* from, tsr_graph** out) {
        // Not AdamW: it makes whole steps of gradients that are nothing but rounding.
        return tsr_graph_training(from, options({{"optimizer", std::string("sgd")}}).get(), out);
      })));
      graphs.push_back(graph_of(
          derived(loss, [](tsr_graph* from, tsr_graph** out) { return tsr_graph_evaluation(from, out); })));
    }
    for (const tessera::Graph& graph : graphs) {
      const Ran alone = run(rt, graph, "cpu:1", "");
      CHECK_MESSAGE(alone.refused.code == TSR_OK, alone.refused.message);
      if (graph.updates().empty()) {
        const Ran other = run(rt, tessera::test::reordered(graph, random, false).value(), "cpu:1", "");
        CHECK(other.values == alone.values);
      }
      for (const char* words : {"", "dp=2", "tp=2"}) {
        CAPTURE(words);
        const Ran shared = run(rt, graph, "cpu:2", words);
        CHECK_MESSAGE(shared.refused.code == TSR_OK, shared.refused.message);
        if (shared.refused.code == TSR_OK) CHECK(largest_difference(alone.values, shared.values) < 2e-4);
      }
    }
  }
}

TEST_CASE("a decoding graph is one program of two entries, prefill and decode, whose logits are the forward pass's") {
  const Runtime rt = runtime();
  constexpr int64_t kContext = 8, kPrompt = 4;
  for (const char* description : {kFamilies[0], kFamilies[1], kFamilies[2]})
    for (const char* devices_text : {"cpu:1", "cpu:2"}) {
      CAPTURE(description);
      CAPTURE(devices_text);
      const Model model = described(description);
      tsr_graph* raw = nullptr;
      ok(tsr_model_graph(model.get(), &raw));
      const Graph forward(raw);
      const std::vector<int32_t> ids = {3, 1, 4, 1, 5, 9};
      const Devices devices = open(rt, devices_text);
      const auto tensor = [](std::vector<int64_t> dims, const std::vector<int32_t>& values) {
        tsr_tensor* made = nullptr;
        ok(tsr_tensor_new(TSR_I32, static_cast<int32_t>(dims.size()), dims.data(), &made));
        std::ranges::copy(values, static_cast<int32_t*>(tsr_tensor_writable(made)));
        return Tensor(made);
      };
      const auto planned = [&](const Graph& graph, int64_t T, const char* symbol = "W=1,N") {
        tsr_plan* made = nullptr;
        ok(tsr_plan_new_for_graph(devices.get(), graph.get(),
                                  options({{"symbols", std::string(symbol) + "=" + std::to_string(T)},
                                           {"parallel", std::string(devices_text[4] == '2' ? "tp=2" : "")}})
                                      .get(),
                                  &made));
        return Plan(made);
      };
      const auto session_of = [&](std::vector<tsr_entry> entries) {
        tsr_program* program = nullptr;
        ok(tsr_program_new(devices.get(), entries.data(), entries.size(), &program));
        const Program owner(program);
        tsr_session* made = nullptr;
        ok(tsr_session_new(program, nullptr, &made));
        ok(tsr_session_write_model(made, model.get()));
        return Session(made);
      };
      const auto logits = [&](const Session& session, const char* entry) {
        ok(tsr_session_run(session.get(), entry));
        tsr_tensor* made = nullptr;
        ok(tsr_session_fetch(session.get(), entry, "logits", &made));
        return numbers(Tensor(made).get());
      };
      const auto count = static_cast<int64_t>(ids.size());
      const Plan whole_plan = planned(forward, count, "T");
      const Session whole = session_of({{sizeof(tsr_entry), "main", forward.get(), whole_plan.get()}});
      ok(tsr_session_feed(whole.get(), "main", "tokens", tensor({1, count}, ids).get()));
      ok(tsr_session_feed(whole.get(), "main", "positions", tensor({1, count}, {0, 1, 2, 3, 4, 5}).get()));
      const std::vector<double> wanted = logits(whole, "main");

      raw = nullptr;
      ok(tsr_graph_decoding(forward.get(), options({{"context", kContext}, {"sample", int64_t{0}}}).get(), &raw));
      const Graph decoding(raw);
      const Plan prefill_plan = planned(decoding, kPrompt), decode_plan = planned(decoding, 1);
      const Session session = session_of({{sizeof(tsr_entry), "prefill", decoding.get(), prefill_plan.get()},
                                          {sizeof(tsr_entry), "decode", decoding.get(), decode_plan.get()}});
      for (int64_t done = 0; done < count;) {
        const char* entry = done == 0 ? "prefill" : "decode";
        const int64_t N = done == 0 ? kPrompt : 1;
        const auto feed = [&](const char* name, const std::vector<int64_t>& shape,
                              const std::vector<int32_t>& values) {
          ok(tsr_session_feed(session.get(), entry, name, tensor(shape, values).get()));
        };
        std::vector<int32_t> places(static_cast<size_t>(N));
        std::iota(places.begin(), places.end(), static_cast<int32_t>(done));
        feed("tokens", {1, N}, {ids.begin() + done, ids.begin() + done + N});
        feed("row", {1, N}, std::vector<int32_t>(places.size(), 0));
        feed("positions", {1, N}, places);
        feed("slot", {1, N}, places);
        feed("page_table", {1, 1}, {0});
        feed("wanted", {1}, {static_cast<int32_t>(N) - 1});
        const std::vector<double> row = logits(session, entry);
        done += N;
        REQUIRE(row.size() == 13);
        for (size_t v = 0; v < row.size(); ++v)
          CHECK(row[v] == doctest::Approx(wanted[static_cast<size_t>(done - 1) * 13 + v]).epsilon(1e-4));
      }
    }
}

TEST_CASE("random graphs in any order of nodes run, the same on one device and on several") {
  const uint32_t count = tessera::test::full() ? 2000 : 100;
  const Runtime rt = runtime();
  std::mt19937 random(11);
  std::map<std::string, int> refused;
  int ran = 0, moved = 0;
  for (uint32_t seed = 0; seed < count; ++seed) {
    CAPTURE(seed);
    tessera::Graph graph = tessera::test::RandomGraph(seed).build(seed % 3 == 0);
    tessera::Graph other = tessera::test::reordered(graph, random, false).value();
    if (seed % 3 == 0) {
      tessera::TrainingOptions step;
      step.optimizer.name = "sgd";
      graph = tessera::make_training_step(graph, step).value();
      other = tessera::make_training_step(other, step).value();
    } else {
      moved += other.fingerprint() != graph.fingerprint();
    }
    const Ran alone = run(rt, graph, "cpu:1", "");
    REQUIRE_MESSAGE(alone.refused.code == TSR_OK, alone.refused.message);
    const Ran again = run(rt, other, "cpu:1", "");
    REQUIRE_MESSAGE(again.refused.code == TSR_OK, again.refused.message);
    CHECK(again.values == alone.values);
    static constexpr std::pair<const char*, const char*> kForms[] = {
        {"cpu:2", ""}, {"cpu:2", "dp=2"}, {"cpu:3", ""}, {"cpu:2", "tp=2"}, {"cpu:3", "dp=3"}, {"cpu:4", "dp=2,tp=2"}};
    const auto& [devices, words] = kForms[seed % std::size(kForms)];
    CAPTURE(devices);
    CAPTURE(words);
    const Ran shared = run(rt, seed % 2 == 0 ? graph : other, devices, words);
    if (shared.refused.code != TSR_OK) {
      CHECK_MESSAGE(shared.refused.code == TSR_UNSUPPORTED, shared.refused.message);
      ++refused[shared.refused.message];
      continue;
    }
    CHECK(largest_difference(alone.values, shared.values) < 1e-9);
    ++ran;
  }
  for (const auto& [why, times] : refused) std::printf("refused %d: %s\n", times, why.c_str());
  std::printf("low level | %u random graphs, %d reordered, %d in parallel\n", count, moved, ran);
  CHECK(ran > static_cast<int>(count) / 2);
}

TEST_CASE("a program of another graph's plan is refused; names alone make no other graph") {
  const Runtime rt = runtime();
  const Devices devices = open(rt, "cpu:1");
  const Graph graph = model_graph(kFamilies[1]), other = model_graph(kFamilies[0]);
  tsr_plan* raw = nullptr;
  ok(tsr_plan_new_for_graph(devices.get(), graph.get(), options({{"symbols", std::string("T=4")}}).get(), &raw));
  const Plan plan(raw);
  const auto program = [&](const Graph& of) {
    const tsr_entry entry = {sizeof(tsr_entry), "main", of.get(), plan.get()};
    tsr_program* made = nullptr;
    const Error error = take(tsr_program_new(devices.get(), &entry, 1, &made));
    tsr_program_free(made);
    return error;
  };
  CHECK(program(graph).code == TSR_OK);
  const Error error = program(other);
  CHECK(error.code == TSR_INVALID_ARGUMENT);
  CHECK(error.message.find("entry 'main': the plan is of graph ") != std::string::npos);
  CHECK(error.message.find("make the plan again") != std::string::npos);
  std::mt19937 random(2);
  CHECK(program(handle_of(tessera::test::reordered(graph_of(graph), random, true).value())).code == TSR_OK);
}
