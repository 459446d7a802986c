#include "engine/training/run_output.h"

#include <utility>

#include "engine/model/adapters.h"
#include "engine/model/model_contents.h"
#include "graph/base/text.h"
#include "text/json.h"

namespace tessera {

namespace {

bool is_gguf(const std::string& path) { return lower_case(path).ends_with(".gguf"); }
bool is_file(const RunSettings& settings) {
  return settings.merge || settings.out.ends_with(".tsr") || is_gguf(settings.out);
}

}  // namespace

Status RunOutput::check_path(const RunSettings& settings) {
  return !settings.out.empty() && is_file(settings) ? SharedModel::check_path(settings.out) : Status();
}

Result<RunOutput> RunOutput::create(const RunSettings& settings, std::shared_ptr<SharedModel> model) {
  const bool has_adapters = adapter_summary(model->graph()).has_value();
  if (settings.merge && !has_adapters)
    return Status(StatusCode::kInvalidArgument,
                  "run: option 'merge' is of adapters, and this model has none (tsr_model_add_adapters, "
                  "tsr_model_load_adapters; the command's --lora RANK, --adapter PATH)");
  const std::string& path = settings.out;
  if (has_adapters && !settings.merge && is_gguf(path))
    return Status(StatusCode::kInvalidArgument,
                  path + ": a GGUF file has no place for a model with adapters: option 'merge' writes the model with the "
                         "adapters in its weights; a folder, or NAME.tsr, keeps them apart");
  const Kind kind = settings.merge                           ? Kind::kMerged
                    : has_adapters && !is_file(settings) ? Kind::kPeft
                                                             : Kind::kModel;
  return RunOutput(path, kind, std::move(model));
}

Status RunOutput::check_files(const RunSettings& settings) const {
  TSR_RETURN_IF_ERROR(check_path(settings));
  if (path_.empty()) return {};
  if (kind_ == Kind::kModel) TSR_RETURN_IF_ERROR(SharedModel::check_path(path_));
  return settings.resume.empty() ? check_written() : Status();
}

const char* RunOutput::kind() const {
  return kind_ == Kind::kPeft ? "adapters" : kind_ == Kind::kMerged ? "merged" : "model";
}

Result<std::unique_ptr<Export>> RunOutput::adapters() const {
  return Export::create(model_, path_, {{"format", "peft"}});
}

Result<std::unique_ptr<Conversion>> RunOutput::trained_model(const std::shared_ptr<Trainer>& trainer) const {
  TSR_ASSIGN_OR_RETURN(ModelContents contents, trainer->contents(model_));
  contents.holds = std::make_shared<std::pair<std::shared_ptr<Trainer>, std::shared_ptr<const void>>>(
      trainer, std::move(contents.holds));
  return Conversion::create(std::move(contents), path_, {});
}

// The first step of an export finds adapters that PEFT cannot express.
Status RunOutput::check_written() const {
  if (kind_ != Kind::kPeft) return Conversion::create(contents_of(model_), path_, {}).status();
  TSR_ASSIGN_OR_RETURN(const auto trial, adapters());
  const Status first = trial->step();
  if (first.ok()) return {};
  return Status(first.code(), format("{}; a name that ends in .tsr gets a model's file with the adapters, option 'merge' one "
                                     "with the adapters in its weights",
                                     first.message()));
}

Status RunOutput::check_trained(const std::shared_ptr<Trainer>& trainer) const {
  if (path_.empty()) return {};
  if (kind_ == Kind::kModel) return trained_model(trainer).status();
  return check_written();
}

Status RunOutput::begin(const std::shared_ptr<Trainer>& trainer) {
  trainer_ = trainer;
  if (kind_ == Kind::kModel) {
    TSR_ASSIGN_OR_RETURN(lease_, trainer->lease("the run's result"));
  } else {
    TSR_RETURN_IF_ERROR(trainer->store(*model_));
  }
  return trainer->lead_status([&] { return begin_here(); });
}

Status RunOutput::begin_here() {
  if (kind_ == Kind::kModel) {
    TSR_ASSIGN_OR_RETURN(conversion_, trained_model(trainer_));
    return {};
  }
  if (kind_ == Kind::kPeft) {
    TSR_ASSIGN_OR_RETURN(export_, adapters());
    return {};
  }
  TSR_ASSIGN_OR_RETURN(const std::shared_ptr<SharedModel> merged, merge_adapters(*model_));
  TSR_ASSIGN_OR_RETURN(conversion_, Conversion::create(contents_of(merged), path_, {}));
  return {};
}

Result<double> RunOutput::step() {
  TSR_ASSIGN_OR_RETURN(const std::string text, trainer_->lead([&]() -> Result<std::string> {
    TSR_ASSIGN_OR_RETURN(const double done, step_here());
    return to_text(done);
  }));
  const std::optional<double> done = parse_f64(text);
  TSR_CHECK(done.has_value(), "the first process tells how much is done");
  if (*done >= 1) cancel();
  return *done;
}

Result<double> RunOutput::step_here() {
  TSR_RETURN_IF_ERROR(conversion_ ? conversion_->step() : export_->step());
  const double done = conversion_ ? conversion_->done() : export_->done();
  if (done < 1) return done;
  TSR_ASSIGN_OR_RETURN(const std::string report, conversion_ ? conversion_->finish() : export_->finish());
  TSR_ASSIGN_OR_RETURN(const Json found, parse_json(report, "the writer's report"));
  if (conversion_ && found.contains("notes"))
    for (const Json& note : found["notes"]) notes_.push_back(note);
  return 1.0;
}

void RunOutput::cancel() {
  conversion_ = nullptr;
  export_ = nullptr;
  lease_ = nullptr;
  trainer_ = nullptr;
}

}  // namespace tessera
