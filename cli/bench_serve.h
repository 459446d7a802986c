// `tessera bench --mode serve`: an engine under load by clients, and the latency of each request.
#pragma once

#include <cstdint>
#include <functional>

#include "command.h"
#include "serving.h"

namespace cli {

struct ServeLoad {
  int64_t clients = 16, prompt = 128, new_tokens = 128, shared = 0;
  int64_t requests = 0;  // 0: four of each client
  double rate = 0;       // arrivals a second; 0: each client sends its next request at the end of the last
  Serving serving;
};
void add_serve_load(CLI::App& command, ServeLoad& load);

// A loaded model: `options` returns the options shared by engines and generators.
struct Served {
  const Runtime& runtime;
  const Model& model;
  std::function<Options()> options;
  int64_t vocabulary = 0;
  double memory_bytes_per_s = 0;    // of all devices; 0 where unknown
  int64_t cache_element_bytes = 4;  // of keys and values where the cache has no type of its own
};

Json bench_serve(const ServeLoad& load, const Served& served);
void print_serve(const Json& result);

}  // namespace cli
