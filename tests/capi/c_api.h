// Comfort for tests of the C API: owning handles, checks, options in one line.
#pragma once

#include <doctest/doctest.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <initializer_list>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "tessera/tessera.h"

namespace capi_test {

struct Error {
  tsr_code code = TSR_OK;
  std::string message;
};

// Takes the status and frees it.
inline Error take(tsr_status* status) {
  Error error{tsr_status_code(status), tsr_status_message(status)};
  tsr_status_free(status);
  return error;
}

inline void ok(tsr_status* status) {
  const Error error = take(status);
  INFO(error.message);
  REQUIRE(error.code == TSR_OK);
}

template <class T, void (*kFree)(T*)>
struct Freer {
  void operator()(T* handle) const { kFree(handle); }
};
template <class T, void (*kFree)(T*)>
using Handle = std::unique_ptr<T, Freer<T, kFree>>;
using Options = Handle<tsr_options, tsr_options_free>;
using Runtime = Handle<tsr_runtime, tsr_runtime_free>;
using Work = Handle<tsr_work, tsr_work_free>;
using Devices = Handle<tsr_devices, tsr_devices_free>;
using Tensor = Handle<tsr_tensor, tsr_tensor_free>;
using Graph = Handle<tsr_graph, tsr_graph_free>;
using Tokenizer = Handle<tsr_tokenizer, tsr_tokenizer_free>;
using Model = Handle<tsr_model, tsr_model_free>;
using Dataset = Handle<tsr_dataset, tsr_dataset_free>;
using Plan = Handle<tsr_plan, tsr_plan_free>;
using Program = Handle<tsr_program, tsr_program_free>;
using Session = Handle<tsr_session, tsr_session_free>;
using Trainer = Handle<tsr_trainer, tsr_trainer_free>;
using Generator = Handle<tsr_generator, tsr_generator_free>;
using Scorer = Handle<tsr_scorer, tsr_scorer_free>;
using Embedder = Handle<tsr_embedder, tsr_embedder_free>;

using Setting = std::pair<const char*, std::variant<int64_t, double, std::string>>;
inline Options options(const std::vector<Setting>& settings) {
  tsr_options* made = nullptr;
  ok(tsr_options_new(&made));
  for (const auto& [key, value] : settings) {
    if (const auto* integer = std::get_if<int64_t>(&value)) ok(tsr_options_set_i64(made, key, *integer));
    if (const auto* real = std::get_if<double>(&value)) ok(tsr_options_set_f64(made, key, *real));
    if (const auto* text = std::get_if<std::string>(&value))
      ok(tsr_options_set_str(made, key, text->c_str()));
  }
  return Options(made);
}
inline Options options(std::initializer_list<Setting> settings) { return options(std::vector<Setting>(settings)); }

// The text that `call` makes: it takes (out_text).
template <class Call>
std::string text(Call&& call) {
  tsr_text* made = nullptr;
  ok(call(&made));
  const Handle<tsr_text, tsr_text_free> owner(made);
  return {tsr_text_data(made), tsr_text_size(made)};
}

// A short text. `call` takes (buffer, capacity, out_size).
template <class Call>
std::string short_text(Call&& call) {
  size_t size = 0;
  ok(call(nullptr, size_t{0}, &size));
  if (size == 0) return {};
  std::string out(size, '\0');
  ok(call(out.data(), out.size(), &size));
  REQUIRE(size == out.size());
  out.pop_back();
  return out;
}

// Steps long work to its end.
inline void step_through(tsr_work* work) {
  for (int32_t done = 0; done == 0;) ok(tsr_work_step(work, &done));
}

inline tsr_progress progress_of(const tsr_work* work) {
  tsr_progress progress{};
  progress.struct_size = sizeof progress;
  ok(tsr_work_progress(work, &progress));
  return progress;
}

inline Runtime runtime() {
  tsr_runtime* made = nullptr;
  ok(tsr_runtime_new(nullptr, &made));
  return Runtime(made);
}

inline Tensor tensor_f32(std::vector<int64_t> dims, const std::vector<float>& values) {
  tsr_tensor* made = nullptr;
  ok(tsr_tensor_new(TSR_F32, static_cast<int32_t>(dims.size()), dims.data(), &made));
  REQUIRE(tsr_tensor_bytes(made) == values.size() * sizeof(float));
  std::copy(values.begin(), values.end(), static_cast<float*>(tsr_tensor_writable(made)));
  return Tensor(made);
}

inline std::vector<float> floats(const tsr_tensor* tensor) {
  const auto* data = static_cast<const float*>(tsr_tensor_data(tensor));
  return {data, data + tsr_tensor_bytes(tensor) / sizeof(float)};
}

// A folder that goes away with it.
struct Scratch {
  std::filesystem::path path;
  Scratch() {
    std::string pattern = (std::filesystem::temp_directory_path() / "tessera_capi_XXXXXX").string();
    REQUIRE(mkdtemp(pattern.data()) != nullptr);
    path = pattern;
  }
  ~Scratch() { std::filesystem::remove_all(path); }
  std::string operator/(const char* name) const { return (path / name).string(); }
};

// Two layers, written as text: x [B, 8] -> relu -> [B, 4], squared error against y, mean by loss_scale.
inline Graph mlp_graph() {
  static constexpr const char* kText = R"(graph {
  symbol B
  input x: f32[B, 8]
  input y: f32[B, 4]
  input loss_scale: f32[]
  parameter w1: f32[8, 16]
  parameter b1: f32[16]
  parameter w2: f32[16, 4]
  h = matmul(x, w1) : f32[B, 16]
  hb = add_bias(h, b1) : f32[B, 16]
  a = relu(hb) : f32[B, 16]
  o = matmul(a, w2) : f32[B, 4]
  d = sub(o, y) : f32[B, 4]
  s = square(d) : f32[B, 4]
  sum = reduce_sum(s) {axes = [0, 1]} : f32[]
  loss = scale_by(sum, loss_scale) : f32[]
  output out = o
  output loss = loss
})";
  tsr_graph* made = nullptr;
  ok(tsr_graph_parse(kText, TSR_TEXT_END, &made));
  return Graph(made);
}

inline Model mlp_model(int64_t seed = 1) {
  tsr_model* made = nullptr;
  ok(tsr_model_new_from_graph(mlp_graph().get(), options({{"seed", seed}}).get(), &made));
  return Model(made);
}

}  // namespace capi_test
