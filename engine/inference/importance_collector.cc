#include "engine/inference/importance_collector.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "engine/base/read_paths.h"
#include "engine/inference/scorer.h"
#include "graph/base/cancellation.h"
#include "graph/base/status_codes.h"
#include "graph/base/text.h"
#include "graph/models/model_family.h"
#include "serialize/atomic_file.h"
#include "serialize/output_name.h"
#include "text/json.h"

namespace tessera {
namespace {

constexpr char kEntry[] = "importance";
constexpr int64_t kDefaultTokens = 512;

}  // namespace

Result<std::unique_ptr<ImportanceCollector>> ImportanceCollector::create(std::shared_ptr<Runtime> runtime,
                                                                         std::shared_ptr<SharedModel> model,
                                                                         std::span<const int32_t> ids,
                                                                         const std::string& path,
                                                                         const Options& options) {
  std::unique_ptr<ImportanceCollector> made(new ImportanceCollector);
  TSR_ASSIGN_OR_RETURN(made->settings_, read_importance_settings(options));
  ImportanceSettings& settings = made->settings_;
  TSR_RETURN_IF_ERROR(check_gguf_name(path));
  TSR_RETURN_IF_ERROR(check_not_read(model->read_paths(), path));
  TSR_RETURN_IF_ERROR(AtomicFile::check(path));
  TSR_ASSIGN_OR_RETURN(made->bos_, window_bos(model->tokenizer().get(), settings.bos, "imatrix"));
  TSR_ASSIGN_OR_RETURN(std::shared_ptr<DeviceSet> devices,
                       runtime->open_devices(settings.compute.devices, settings.compute.profile));
  const int64_t longest = model->context_length();
  if (settings.seq == 0) settings.seq = longest > 0 ? std::min(longest, kDefaultTokens) : kDefaultTokens;
  if (longest > 0 && settings.seq > longest)
    return Status(StatusCode::kInvalidArgument,
                  format("imatrix: option 'seq' is {}, the model's context holds {}", settings.seq, longest));
  if (settings.batch == 0) settings.batch = devices->size();
  made->text_step_ = settings.seq - (made->bos_ >= 0 ? 1 : 0);
  made->windows_ = made->text_step_ > 0 ? static_cast<int64_t>(ids.size()) / made->text_step_ : 0;
  if (made->windows_ == 0)
    return Status(
        StatusCode::kInvalidArgument,
        format("imatrix: the text{} has {} tokens, a window {} (option 'seq'): give a longer text, or a "
               "smaller seq",
               settings.name.empty() ? "" : format(" '{}'", settings.name), ids.size(), settings.seq));
  made->ids_.assign(ids.begin(), ids.begin() + made->windows_ * made->text_step_);
  made->path_ = path;
  made->family_ = model->metadata("architecture");

  const Graph forward = model->graph();
  TSR_ASSIGN_OR_RETURN(CompiledProgram compiled,
                       compile_importance(forward, settings, devices, &made->outputs_));
  TSR_ASSIGN_OR_RETURN(auto prepared, prepare(std::move(runtime), std::move(devices), std::move(compiled)));
  TSR_ASSIGN_OR_RETURN(made->running_, ProgramRunner::create(std::move(prepared), {.side = CoreSide::kInference}));
  const TensorType wanted{DType::kI32, Shape{settings.batch, settings.seq}};
  const TensorType* const tokens = made->running_->find_input(kEntry, "tokens");
  if (tokens == nullptr || *tokens != wanted)
    return Status(
        StatusCode::kInvalidArgument,
        format("an importance matrix wants an input 'tokens' i32[B, T] with the symbols B and T, the "
               "model's is {} for {} windows of {} tokens",
               tokens == nullptr ? "absent" : to_text(*tokens), settings.batch, settings.seq));
  if (const auto logits = forward.find_output("logits"))
    TSR_RETURN_IF_ERROR(made->check_ids(forward.type(*logits).shape.dims().back()));
  TSR_RETURN_IF_ERROR(made->running_->write_parameters(*model, model->seed()));
  if (made->running_->has_input(kEntry, "positions")) {
    std::vector<int32_t> positions(static_cast<size_t>(settings.batch * settings.seq));
    for (size_t i = 0; i < positions.size(); ++i)
      positions[i] = static_cast<int32_t>(static_cast<int64_t>(i) % settings.seq);
    TSR_RETURN_IF_ERROR(made->running_->feed(
        kEntry, "positions", HostTensor{wanted, std::as_bytes(std::span(positions)), nullptr}));
  }
  if (made->running_->has_input(kEntry, "token_types")) {
    const std::vector<int32_t> types(static_cast<size_t>(settings.batch * settings.seq));
    TSR_RETURN_IF_ERROR(made->running_->feed(kEntry, "token_types",
                                             HostTensor{wanted, std::as_bytes(std::span(types)), nullptr}));
  }
  return made;
}

Status ImportanceCollector::check_ids(int64_t vocabulary) const {
  for (size_t i = 0; i < ids_.size(); ++i)
    if (ids_[i] < 0 || ids_[i] >= vocabulary)
      return Status(StatusCode::kInvalidArgument,
                    format("ids[{}] is {}, the model has tokens 0 to {}", i, ids_[i], vocabulary - 1));
  return {};
}

double ImportanceCollector::done() const {
  return static_cast<double>(next_) / static_cast<double>(windows_);
}

WorkProgress ImportanceCollector::progress() const {
  return {done(), next_, windows_, "windows", next_ < windows_ ? "computing" : ""};
}

Status ImportanceCollector::step() {
  TSR_RETURN_IF_ERROR(running_->prepared()->runtime->check_process());
  if (next_ == windows_) return {};
  cancellation_point();
  if (running_->failed()) TSR_RETURN_IF_ERROR(running_->restore());
  TSR_RETURN_IF_ERROR(feed());
  TSR_RETURN_IF_ERROR(running_->run(kEntry));
  TSR_RETURN_IF_ERROR(add_results());
  next_ = std::min(windows_, next_ + settings_.batch);
  return {};
}

// Surplus rows of the last batch read token 0 and are not summed.
Status ImportanceCollector::feed() {
  tokens_.assign(static_cast<size_t>(settings_.batch * settings_.seq), 0);
  for (int64_t row = 0; row < std::min(settings_.batch, windows_ - next_); ++row) {
    auto to = tokens_.begin() + row * settings_.seq;
    if (bos_ >= 0) *to++ = bos_;
    std::copy_n(ids_.begin() + (next_ + row) * text_step_, text_step_, to);
  }
  return running_->feed(
      kEntry, "tokens",
      HostTensor{
          {DType::kI32, Shape{settings_.batch, settings_.seq}}, std::as_bytes(std::span(tokens_)), nullptr});
}

Status ImportanceCollector::add_results() {
  std::vector<std::vector<float>> sums;
  for (const InputSquares::Output& output : outputs_) {
    TSR_ASSIGN_OR_RETURN(const HostTensor value, running_->session().fetch(kEntry, output.name));
    sums.emplace_back(value.as<float>().begin(), value.as<float>().end());
    if (std::ranges::any_of(sums.back(), [](float sum) { return !std::isfinite(sum); }))
      return Status(kNotFinite,
                    format("an input of '{}' is not finite: the model's weights or activations are not",
                           output.weights.front()));
  }
  const int64_t rows = std::min(settings_.batch, windows_ - next_);
  for (size_t i = 0; i < outputs_.size(); ++i) {
    const size_t columns = sums[i].size() / static_cast<size_t>(settings_.batch);
    for (const std::string& weight : outputs_[i].weights) {
      const auto name = gguf_name(family_, weight);
      // Parts of one file tensor share their input.
      if (name && !name->parts[0].empty() && name->parts[0] != weight) continue;
      std::vector<double>& all = sums_.squares[name ? name->tensor : weight];
      all.resize(columns);
      for (size_t row = 0; row < static_cast<size_t>(rows); ++row)
        for (size_t k = 0; k < columns; ++k) all[k] += static_cast<double>(sums[i][row * columns + k]);
    }
  }
  sums_.rows += rows * settings_.seq;
  return {};
}

Result<std::string> ImportanceCollector::finish() {
  if (is_written_)
    return Status(StatusCode::kFailedPrecondition,
                  format("{}: is written already, by an earlier finish", path_));
  if (next_ < windows_)
    return Status(StatusCode::kFailedPrecondition,
                  format("{}: {} of {} windows are done: step until 1 is done", path_, next_, windows_));
  sums_.windows = windows_;
  sums_.window = settings_.seq;
  sums_.text = settings_.name;
  TSR_RETURN_IF_ERROR(write_importance(sums_, path_));
  is_written_ = true;
  return dump({{"weights", sums_.squares.size()},
               {"windows", windows_},
               {"seq", settings_.seq},
               {"tokens", ids_.size()},
               {"bos", bos_}});
}

}  // namespace tessera
