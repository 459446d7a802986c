// C++ wrappers of tessera.h for the command: handles that
// free themselves, errors as exceptions, texts as strings.
#pragma once

#include <tessera/tessera.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

namespace cli {

// An error of the library or of the command line; main prints it and exits with 1.
class Error : public std::runtime_error {
 public:
  Error(tsr_code code, const std::string& message) : std::runtime_error(message), code_(code) {}
  tsr_code code() const { return code_; }

 private:
  tsr_code code_;
};

inline void check(tsr_status* status) {
  if (status == nullptr) return;
  Error error(tsr_status_code(status), tsr_status_message(status));
  tsr_status_free(status);
  throw error;
}

template <class T, void (*Free)(T*)>
struct Freer {
  void operator()(T* handle) const { Free(handle); }
};
template <class T, void (*Free)(T*)>
using Handle = std::unique_ptr<T, Freer<T, Free>>;

using Options = Handle<tsr_options, tsr_options_free>;
using Runtime = Handle<tsr_runtime, tsr_runtime_free>;
using Work = Handle<tsr_work, tsr_work_free>;
using Devices = Handle<tsr_devices, tsr_devices_free>;
using Tensor = Handle<tsr_tensor, tsr_tensor_free>;
using Tokenizer = Handle<tsr_tokenizer, tsr_tokenizer_free>;
using Model = Handle<tsr_model, tsr_model_free>;
using Chat = Handle<tsr_chat, tsr_chat_free>;
using Dataset = Handle<tsr_dataset, tsr_dataset_free>;
using Graph = Handle<tsr_graph, tsr_graph_free>;
using Calibration = Handle<tsr_calibration, tsr_calibration_free>;
using Plan = Handle<tsr_plan, tsr_plan_free>;
using Trainer = Handle<tsr_trainer, tsr_trainer_free>;
using Run = Handle<tsr_run, tsr_run_free>;
using Generator = Handle<tsr_generator, tsr_generator_free>;
using Engine = Handle<tsr_engine, tsr_engine_free>;
using RequestFile = Handle<tsr_request_file, tsr_request_file_free>;
using Scorer = Handle<tsr_scorer, tsr_scorer_free>;
using Embedder = Handle<tsr_embedder, tsr_embedder_free>;

// make<Runtime>(tsr_runtime_new, options): calls a C constructor whose last argument is the handle.
template <class H, class Function, class... Args>
H make(Function function, Args... arguments) {
  typename H::pointer raw = nullptr;
  check(function(arguments..., &raw));
  return H(raw);
}

// text(tsr_model_info, model): calls a C function whose last argument is the text that it returns.
template <class Function, class... Args>
std::string text(Function function, Args... arguments) {
  tsr_text* raw = nullptr;
  check(function(arguments..., &raw));
  const Handle<tsr_text, tsr_text_free> made(raw);
  return {tsr_text_data(raw), tsr_text_size(raw)};
}

// short_text(tsr_calibration_default_path, calibration): a name, copied to a buffer.
template <class Function, class... Args>
std::string short_text(Function function, Args... arguments) {
  size_t size = 0;
  check(function(arguments..., nullptr, size_t{0}, &size));
  std::string out(size, '\0');
  check(function(arguments..., out.data(), out.size(), &size));
  out.resize(size > 0 ? size - 1 : 0);
  return out;
}

inline void set(const Options& options, const char* key, int64_t value) {
  check(tsr_options_set_i64(options.get(), key, value));
}
inline void set(const Options& options, const char* key, double value) {
  check(tsr_options_set_f64(options.get(), key, value));
}
inline void set(const Options& options, const char* key, const std::string& value) {
  check(tsr_options_set_str(options.get(), key, value.c_str()));
}

// Throws the errors of a `consumer`'s constructor for the options alone, before files are read.
inline void check_options(const Options& options, const char* consumer) {
  check(tsr_options_check(options.get(), consumer));
}

// No effect without a value: the library's default then applies.
template <class T>
void set(const Options& options, const char* key, const std::optional<T>& value) {
  if (value) set(options, key, *value);
}

}  // namespace cli
