// Settings of an engine and of its requests, read from Options; the keys are documented in tessera.h.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/base/options.h"
#include "engine/model/shared_model.h"
#include "engine/program/serving_settings.h"
#include "engine/sampling/sampling_settings.h"
#include "engine/serving/texts/grammar_source.h"
#include "engine/serving/texts/prompt_reader.h"

namespace tessera {

struct EngineSettings {
  ServingSettings serving;
  SamplingSettings sampling;            // of requests that say nothing else
  std::string draft_model;              // path; empty: none
  std::vector<std::string> not_obeyed;  // that the model's file recommends
};

Result<EngineSettings> read_engine_settings(const Options& options, const SharedModel& model);

struct RequestSettings {
  SamplingSettings sampling;
  GrammarSource grammar;
  int64_t priority = 0, adapter = -1;
  bool changes_logits = false, keeps_sequence = false;
  bool parses = false;          // answers to messages are taken apart
  // Nothing is generated; where these are absent, pooling and normalisation are as the model's file says.
  std::optional<PromptTask> task;
  std::optional<Pooling> pooling;
  std::optional<bool> normalize;
  Options chat, chat_template;  // of messages: those of a conversation, and which template
};

// `messages`: whether options of conversations are known.
Result<RequestSettings> read_request_settings(const Options& options, const SamplingSettings& otherwise,
                                              bool messages);

}  // namespace tessera
