// Settings of an engine and of its requests, read from Options; tessera.h documents the keys.
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
#include "engine/serving/texts/tool_choice.h"

namespace tessera {

struct EngineSettings {
  ServingSettings serving;
  SamplingSettings sampling;            // defaults of requests
  std::string draft_model;              // path; empty: no draft model
  std::vector<std::string> not_obeyed;  // recommendations of the model's file that are ignored
};

// `model`: whose file may recommend sampling settings; null: none does.
Result<EngineSettings> read_engine_settings(const Options& options, const SharedModel* model);
// Fills in serving.draft; nothing where no draft model is named.
Status load_draft_model(EngineSettings& settings);

struct RequestSettings {
  SamplingSettings sampling;
  GrammarSource grammar;
  int64_t priority = 0, adapter = -1;
  bool changes_logits = false, keeps_sequence = false;
  bool parses = false;          // answers to messages are parsed
  // Generates nothing. Absent pooling and normalisation default to the model's file.
  std::optional<PromptTask> task;
  std::optional<Pooling> pooling;
  std::optional<bool> normalize;
  ToolChoice tool_choice;       // of messages
  Options chat, chat_template;  // options of messages: template variables, and the template's name
};

// `messages`: conversation options are accepted.
Result<RequestSettings> read_request_settings(const Options& options, const SamplingSettings& otherwise,
                                              bool messages);

}  // namespace tessera
