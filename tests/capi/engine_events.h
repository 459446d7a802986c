// Engines over bytes, and their events.
#pragma once

#include <initializer_list>
#include <string>

#include "c_api.h"
#include "text/json.h"

namespace capi_test {

using Engine = Handle<tsr_engine, tsr_engine_free>;

// Random weights over the 256 bytes.
inline Model bytes_model(const char* description = "llama:L=2,C=32,H=4,KV=2,F=48,V=256,T=256", int64_t seed = 3) {
  tsr_model* made = nullptr;
  ok(tsr_model_new(description, options({{"seed", seed}}).get(), &made));
  Model model(made);
  tsr_tokenizer* tokenizer = nullptr;
  ok(tsr_tokenizer_new_bytes(&tokenizer));
  const Tokenizer owner(tokenizer);
  ok(tsr_model_set_tokenizer(made, tokenizer));
  return model;
}

inline Engine engine(const Runtime& rt, const Model& model, std::initializer_list<Setting> settings = {}) {
  tsr_engine* made = nullptr;
  ok(tsr_engine_new(rt.get(), model.get(), options(settings).get(), &made));
  return Engine(made);
}

inline tsr_event next(const Engine& from, double timeout_s = -1) {
  tsr_event event{};
  event.struct_size = sizeof event;
  ok(tsr_engine_next(from.get(), timeout_s, &event));
  return event;
}

inline tessera::Json details(const tsr_event& event) {
  return event.details_size == 0 ? tessera::Json() : tessera::Json::parse(std::string(event.details, event.details_size));
}

}  // namespace capi_test
