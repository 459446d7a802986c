// The structs behind the handles of tessera.h. Each shares ownership of an engine object, so handles may be
// freed in any order. Marshalling only: no decisions are made here.
#pragma once

#include <memory>
#include <string>

#include "engine/base/options.h"
#include "engine/base/runtime.h"
#include "engine/calibration/calibration.h"
#include "engine/data/dataset.h"
#include "engine/inference/embedder.h"
#include "engine/inference/generator.h"
#include "engine/inference/request_run.h"
#include "engine/inference/scorer.h"
#include "engine/model/shared_model.h"
#include "engine/planning/planning.h"
#include "engine/program/program_runner.h"
#include "engine/sampling/chat.h"
#include "engine/serving/replicas/engine.h"
#include "engine/training/adapter_trainer.h"
#include "engine/training/run_log.h"
#include "engine/training/trainer.h"
#include "engine/training/training_run.h"
#include "graph/graph.h"
#include "graph/host_tensor.h"
#include "tessera/tessera.h"

struct tsr_status {
  tessera::Status value;
};
struct tsr_text {
  std::string value;
};
struct tsr_options {
  tessera::Options value;
};
struct tsr_runtime {
  std::shared_ptr<tessera::Runtime> value;
};
struct tsr_devices {
  std::shared_ptr<tessera::Runtime> runtime;  // first: the registry outlives the devices
  std::shared_ptr<tessera::DeviceSet> value;
};
struct tsr_tensor {
  tessera::HostTensor value;
  std::byte* writable = nullptr;  // null for borrowed and file-backed values
  std::string name;
};
struct tsr_graph {
  tessera::Graph value;
};
struct tsr_tokenizer {
  std::shared_ptr<const tessera::Tokenizer> value;
  int64_t rows = 0;  // of the model's table, if it is a model's: ids of rows without a token decode to nothing
};
struct tsr_model {
  std::shared_ptr<tessera::SharedModel> value;
};
struct tsr_chat {
  std::shared_ptr<const tessera::Chat> value;
};
struct tsr_dataset {
  std::shared_ptr<const tessera::Dataset> value;
};
struct tsr_calibration {
  std::shared_ptr<const tessera::Calibration> value;
};
struct tsr_plan {
  std::shared_ptr<const tessera::PlanRecord> value;
};
struct tsr_program {
  std::shared_ptr<const tessera::LoadedProgram> value;
};
struct tsr_session {
  std::unique_ptr<tessera::ProgramRunner> value;
};
struct tsr_trainer {
  std::shared_ptr<tessera::Trainer> value;
};
struct tsr_adapter_trainer {
  std::shared_ptr<tessera::AdapterTrainer> value;
  std::vector<float> logprobs;  // of the last result
};
struct tsr_run_log {
  std::unique_ptr<tessera::RunLog> value;
};
struct tsr_run {
  std::unique_ptr<tessera::TrainingRun> value;
  std::string details;  // of the last event
};
struct tsr_generator {
  std::unique_ptr<tessera::Generator> value;
  std::string text;  // of the last piece
};
struct tsr_engine {
  std::unique_ptr<tessera::Engine> value;
  std::string text, details;  // of the last event
};
struct tsr_request_file {
  std::unique_ptr<tessera::RequestRun> value;
};
struct tsr_sequence {
  tessera::KeptSequence value;
};
struct tsr_embedder {
  std::unique_ptr<tessera::Embedder> value;
};
struct tsr_scorer {
  std::unique_ptr<tessera::Scorer> value;
};
