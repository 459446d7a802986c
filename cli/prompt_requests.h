// Requests of an engine that compute of their prompts alone: submitted some ahead, and taken as they end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "inference.h"

namespace cli {

struct PromptRequests {
  size_t count = 0;
  std::string done;                                      // for progress: "scored"
  std::function<std::optional<int64_t>(size_t)> submit;  // the request's number; nothing where none is needed
  std::function<void(size_t, int64_t)> take;             // the result of that one, of this number
};

// An engine for such requests, of prompts of at most `longest` tokens, with these options and those of the command; nothing for
// a model or options that it refuses: scorers and embedders take more, and say what is wrong.
std::optional<Engine> prompt_engine(const Common& common, const Inference& inference, const Runtime& runtime,
                                    const Model& model, const Options& options, int64_t longest);

// Throws the error of a request that failed, and for Ctrl-C.
void run_requests(const Common& common, const Engine& engine, const PromptRequests& requests);

// "positions", "seconds", "seq", "batch", "cached_tokens", "plan" and "devices", from an engine's report.
Json computed_report(const Engine& engine);

}  // namespace cli
