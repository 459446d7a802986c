// A decoding step as the few launches that the backend makes of it, against the same step with every kernel
// by itself: the same bits in logits and pages.
#include <doctest/doctest.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "graph/base/half.h"
#include "graph/base/text.h"
#include "graph/models/model_family.h"
#include "graph/transform/precision.h"
#include "graph/transform/serving.h"
#include "graph/transform/weight_storage.h"
#include "parallel/lowering/lower.h"
#include "parallel/planner/planner.h"
#include "runtime/session.h"
#include "tests/test_backend.h"

extern "C" const tsr_backend_api* tsr_cpu_backend_entry(const tsr_host_api* host);

namespace tessera {
namespace {

struct Model {
  std::string text;  // without its layers
  DType precision = DType::kF32;
  std::optional<DType> weights = {};  // WeightStorage::matrices
  int64_t B = 1, T = 1;               // sequences, and tokens of each
};
constexpr int64_t kPage = 64;  // positions; a page a sequence

BackendRegistry& registry() {
  static BackendRegistry registry([] {
    RegistryOptions options;
    options.built_in = {tsr_cpu_backend_entry};
    options.plugin_path = test::plugin_folder();
    options.threads = 2;
    return options;
  }());
  return registry;
}

HostTensor noise(const TensorType& type, std::mt19937& random) {
  const auto count = static_cast<size_t>(type.shape.elements());
  std::normal_distribution<float> normal(0, 0.25f);
  const auto made = [&](auto each) {
    std::vector<decltype(each())> values(count);
    for (auto& value : values) value = each();
    return HostTensor::copy_of<decltype(each())>(type, values);
  };
  switch (type.dtype) {
    case DType::kBF16: return made([&] { return bf16_from_f32(normal(random)); });
    case DType::kF16: return made([&] { return f16_from_f32(normal(random) / 64); });
    default: return made([&] { return normal(random); });
  }
}

struct Outcome {
  int64_t launches = 0;
  std::vector<std::byte> bits;  // of all steps' logits, then of the pages
};

Result<Outcome> decode(const Model& model, int64_t layers, bool fuse) {
  const std::string words = format("{},L={}", model.text, layers);
  TSR_ASSIGN_OR_RETURN(const ModelConfig config, parse_shorthand(words));
  TSR_ASSIGN_OR_RETURN(Graph graph, build_model(config));
  if (model.precision != DType::kF32) {
    TSR_ASSIGN_OR_RETURN(graph, with_mixed_precision(graph, model.precision));
  }
  TSR_ASSIGN_OR_RETURN(
      graph, make_serving(
                 graph, {.pages = model.B, .page_size = kPage, .rows = model.B, .context = 16, .cache = {}}));
  TSR_ASSIGN_OR_RETURN(graph, with_stored_weights(graph, {.types = {}, .matrices = model.weights}));
  TSR_ASSIGN_OR_RETURN(const std::string named, test::devices_for(registry(), 1));
  TSR_ASSIGN_OR_RETURN(auto devices, DeviceSet::open(registry(), named));
  PlanOptions options;
  const int64_t count = model.B * model.T;
  options.symbols = {{"B", 1}, {"N", count}, {"W", model.B}};
  options.global_batch = 1;
  TSR_ASSIGN_OR_RETURN(const PlanResult made,
                       make_plan(graph, devices->cluster(), devices->catalog(), options));
  const EntrySpec entries[] = {{"decode", &graph, &made.plan}};
  TSR_ASSIGN_OR_RETURN(Program program, lower(entries, devices->catalog()));
  TSR_ASSIGN_OR_RETURN(auto executable, Executable::prepare(devices, std::move(program)));
  TSR_ASSIGN_OR_RETURN(auto session, Session::create(executable, {.fuse_launches = fuse}));

  std::mt19937 random(3);
  for (const TensorId id : graph.tensors_of_kind(TensorKind::kParameter))
    TSR_RETURN_IF_ERROR(session->write(graph.tensor(id).name, noise(graph.type(id), random)));
  Outcome out;
  const auto keep = [&](const HostTensor& value) {
    out.bits.insert(out.bits.end(), value.data.begin(), value.data.end());
  };
  const auto feed = [&](const char* name, const Shape& shape, const auto& value_of) {
    std::vector<int32_t> values(static_cast<size_t>(shape.elements()));
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<int32_t>(value_of(i));
    return session->feed("decode", name, HostTensor::copy_of<int32_t>({DType::kI32, shape}, values));
  };
  for (int64_t step = 0; step < 4; ++step) {  // the third is the first as a captured graph
    const auto row = [&](size_t i) { return static_cast<int64_t>(i) / model.T; };
    const auto position = [&](size_t i) {
      return step * model.T + row(i) + static_cast<int64_t>(i) % model.T;
    };
    const Shape per_token{1, count};
    TSR_RETURN_IF_ERROR(feed("tokens", per_token, [&](size_t i) { return (5 * step + 3 * i) % 40; }));
    TSR_RETURN_IF_ERROR(feed("row", per_token, row));
    TSR_RETURN_IF_ERROR(feed("positions", per_token, position));
    TSR_RETURN_IF_ERROR(feed("slot", per_token, [&](size_t i) { return row(i) * kPage + position(i); }));
    TSR_RETURN_IF_ERROR(feed("page_table", Shape{model.B, 1}, [](size_t b) { return b; }));
    TSR_RETURN_IF_ERROR(
        feed("wanted", Shape{model.B}, [&](size_t b) { return static_cast<int64_t>(b + 1) * model.T - 1; }));
    TSR_RETURN_IF_ERROR(session->run("decode"));
    TSR_ASSIGN_OR_RETURN(const HostTensor logits, session->fetch("decode", "logits"));
    keep(logits);
  }
  for (const TensorId id : graph.tensors_of_kind(TensorKind::kState)) {
    TSR_ASSIGN_OR_RETURN(const HostTensor cache, session->read(graph.tensor(id).name));
    keep(cache);
  }
  out.launches = session->launches("decode");
  return out;
}

// Kernels a layer: by themselves (lowering has joined some on GPUs) and joined, attention as one (which takes
// one or two launches itself). On cores what is small or runs task by task is joined, whatever it is.
void check(const Model& model, int64_t separate, int64_t fused) {
  if (test::test_backend() == "cpu" && model.precision == DType::kF16) return;  // not computed there
  CAPTURE(model.text);
  CAPTURE(to_text(model.precision));
  CAPTURE(model.B * model.T);
  Outcome unjoined[2], joined[2];
  for (const int64_t layers : {2, 3}) {
    const auto one = decode(model, layers, false), other = decode(model, layers, true);
    REQUIRE_MESSAGE(one.ok(), one.status().to_string());
    REQUIRE_MESSAGE(other.ok(), other.status().to_string());
    CHECK(one->bits == other->bits);
    CHECK(one->bits.size() > 0);
    unjoined[layers - 2] = *one;
    joined[layers - 2] = *other;
  }
  CHECK(unjoined[1].launches - unjoined[0].launches == separate);
  const int64_t layer = joined[1].launches - joined[0].launches;
  if (test::test_backend() == "cuda")
    CHECK(layer == fused);
  else
    CHECK(layer < separate);
}

constexpr const char* kLlama = "llama:C=64,H=4,KV=2,F=96,V=40,T=32";
constexpr const char* kHalves = "llama:C=64,H=8,KV=2,F=160,V=40,T=32,rope_half=1";
constexpr const char* kGpt2 = "gpt2:C=64,H=4,V=40,T=32";

// What follows products of f32 or 16-bit weights of the type of the activations, a sum or gelu, is part of
// them in the program already: matmul_add, or matmul with its activation.
int64_t joined_by_lowering(const Model& model, int64_t kernels) {
  const bool is_same = !model.weights || (model.weights == DType::kBF16 && model.precision != DType::kF32);
  return is_same && test::test_backend() == "cuda" ? kernels : 0;
}

TEST_CASE("a_llama_layer_decodes_in_five_kernels_with_the_bits_of_seventeen") {
  for (const Model& model :
       {Model{kLlama}, Model{kHalves, DType::kBF16, DType::kBF16}, Model{kLlama, DType::kF16, DType::kBF16},
        Model{kHalves, DType::kF32, DType::kBF16}, Model{kLlama, DType::kBF16, DType::kF16},
        Model{kLlama, DType::kBF16, DType::kBF16, 3, 1}, Model{kHalves, DType::kF32, DType::kF16, 2, 2}})
    check(model, 17 - joined_by_lowering(model, 2), 5);
}

TEST_CASE("a_gpt2_layer_decodes_in_five_kernels_with_the_bits_of_fourteen") {
  for (const Model& model :
       {Model{kGpt2}, Model{kGpt2, DType::kBF16, DType::kBF16}, Model{kGpt2, DType::kBF16, DType::kF16, 4, 1},
        Model{kGpt2, DType::kF32, DType::kBF16, 1, 2}})
    check(model, 14 - joined_by_lowering(model, 3), 5);
}

// Products that threads share, side by side where they do not wait for one another.
TEST_CASE("wide_layers_decode_in_fewer_launches_with_the_same_bits_on_two_threads") {
  constexpr const char* kWide = "llama:C=512,H=8,KV=2,F=1024,V=64,T=32";
  constexpr const char* kWideGpt2 = "gpt2:C=384,H=6,V=64,T=32";
  for (const Model& model : {Model{kWide}, Model{kWide, DType::kF32, DType::kBF16},
                             Model{kWide, DType::kF32, std::nullopt, 2, 3}, Model{kWideGpt2},
                             Model{kWideGpt2, DType::kF32, DType::kBF16, 3, 1}}) {
    CAPTURE(model.text);
    const auto unjoined = decode(model, 2, false), joined = decode(model, 2, true);
    REQUIRE_MESSAGE(unjoined.ok(), unjoined.status().to_string());
    REQUIRE_MESSAGE(joined.ok(), joined.status().to_string());
    CHECK(unjoined->bits == joined->bits);
    if (test::test_backend() == "cpu") CHECK(joined->launches * 2 < unjoined->launches);
  }
}

}  // namespace
}  // namespace tessera
