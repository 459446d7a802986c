#include "trained_output.h"

#include <algorithm>
#include <cctype>
#include <string_view>

#include "steps.h"

namespace cli {

bool TrainedOutput::is_gguf() const {
  return path_.size() >= 5 &&
         std::ranges::equal(path_.substr(path_.size() - 5), std::string_view(".gguf"),
                            [](unsigned char a, unsigned char b) { return std::tolower(a) == b; });
}

void TrainedOutput::check_path() const {
  if (merge_ && path_.empty())
    throw Error(TSR_INVALID_ARGUMENT,
                "--merge writes a model, and nothing says where: --out FILE is missing");
  if (is_file()) check_output(path_);
}

Export TrainedOutput::make_export(const Model& model) const {
  const Options options = make<Options>(tsr_options_new);
  set(options, "format", std::string("peft"));
  return make<Export>(tsr_export_new_for_model, static_cast<tsr_runtime*>(nullptr), model.get(),
                      path_.c_str(), static_cast<const tsr_options*>(options.get()));
}

Conversion TrainedOutput::make_conversion(const Trainer& trainer, const Model& model) const {
  return make<Conversion>(tsr_conversion_new_for_trainer, trainer.get(), model.get(), path_.c_str(),
                          static_cast<const tsr_options*>(nullptr));
}

// The first step of an export finds what PEFT has no form for.
void TrainedOutput::check_write(const Model& model) const {
  if (kind_ != Kind::kPeft)
    return (void)make<Conversion>(tsr_conversion_new_for_model, static_cast<tsr_runtime*>(nullptr), model.get(),
                                  path_.c_str(), static_cast<const tsr_options*>(nullptr));
  const Export trial = make_export(model);
  try {
    double done = 0;
    check(tsr_export_step(trial.get(), &done));
  } catch (const Error& error) {
    throw Error(error.code(), std::string(error.what()) +
                                  "; --out NAME.tsr writes a model's file with the adapters, --merge one without");
  }
}

void TrainedOutput::check_resumed(const Trainer& trainer, const Model& model) const {
  if (path_.empty()) return;
  if (kind_ == Kind::kModel) return (void)make_conversion(trainer, model);
  check_write(model);
}

void TrainedOutput::check_model(const Model& model, bool is_resumed) {
  const bool has_adapters = !Json::parse(text(tsr_model_info, model.get()))["adapters"].is_null();
  if (merge_ && !has_adapters)
    throw Error(TSR_INVALID_ARGUMENT,
                "--merge is of adapters, and this model has none (--lora RANK, --adapter PATH)");
  if (path_.empty()) return;
  if (has_adapters && !merge_ && is_gguf())
    throw Error(TSR_INVALID_ARGUMENT, path_ +
                                          ": a GGUF file has no place for a model with adapters: --merge "
                                          "writes the model with the adapters in "
                                          "its weights; --out FOLDER, or NAME.tsr, keeps them apart");
  kind_ = merge_ ? Kind::kMerged : has_adapters && !is_file() ? Kind::kPeft : Kind::kModel;
  if (kind_ == Kind::kModel) check_output(path_);
  if (!is_resumed) check_write(model);
}

const char* TrainedOutput::noun() const {
  return kind_ == Kind::kPeft     ? "the adapters, as PEFT has them,"
         : kind_ == Kind::kMerged ? "the merged model"
                                  : "the model";
}

void TrainedOutput::write(const Common& common, const Trainer& trainer, const Model& model) const {
  if (path_.empty()) return;
  if (kind_ == Kind::kModel) {
    const Conversion conversion = make_conversion(trainer, model);
    run_steps(conversion, tsr_conversion_step, "writing " + path_, common);
    return finish_conversion(common, conversion);
  }
  check(tsr_trainer_store(trainer.get(), model.get()));  // only the trained parameters
  if (kind_ == Kind::kMerged)
    return save_model(common, make<Model>(tsr_model_merge_adapters, model.get()), path_);
  const Export work = make_export(model);
  run_steps(work, tsr_export_step, "writing " + path_, common);
  check(tsr_export_finish(work.get(), nullptr));
}

}  // namespace cli
