// Phases: open the source, write parameters slice by slice, write the index, verify. GGUF is written by an Export.
#include "engine/model/conversion.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "engine/base/read_paths.h"
#include "engine/base/written_state.h"
#include "engine/model/adapter_folder.h"
#include "engine/model/loading.h"
#include "engine/model/quantize.h"
#include "graph/base/cancellation.h"
#include "graph/base/text.h"
#include "serialize/output_name.h"
#include "text/json.h"

namespace tessera {
namespace {

constexpr int kStepSlices = 16;
constexpr auto kStepTime = std::chrono::milliseconds(50);  // no further slice begins after this
constexpr int64_t kOpenBytes = int64_t{32} << 20;  // cost of opening in bytes: tables, graph, tokenizer
constexpr int64_t kIndexBytes = int64_t{8} << 20;

// A conversion's options as options of a GGUF export.
Result<Options> gguf_options(const Options& options) {
  OptionReader reader(options, "conversion");
  for (const auto& [key, value] : options) reader.accept({key});
  if (reader.flag("compress", false))
    return Status(
        StatusCode::kInvalidArgument,
        "conversion: option 'compress' is 1, and GGUF files are not compressed: wanted a .tsr file, or 0");
  (void)reader.flag("verify", true);
  TSR_RETURN_IF_ERROR(reader.finish());
  Options of_export = options;
  of_export.erase("compress"), of_export.erase("verify");
  of_export["format"] = std::string("gguf");
  return of_export;
}

}  // namespace

Result<Conversion::Settings> Conversion::read_settings(const Options& options) {
  OptionReader reader(options, "conversion");
  Settings settings;
  settings.save.compress = reader.flag("compress", false);
  settings.verify = reader.flag("verify", true);
  TSR_ASSIGN_OR_RETURN(settings.quantization, read_quantization_settings(reader));
  return settings;
}

Result<std::unique_ptr<Conversion>> Conversion::create(const std::string& in, const std::string& out,
                                                       const Options& options) {
  if (is_gguf_name(out)) {
    TSR_ASSIGN_OR_RETURN(const Options of_export, gguf_options(options));
    std::unique_ptr<Conversion> made(new Conversion(out, {}));
    TSR_ASSIGN_OR_RETURN(made->export_, Export::create(in, out, of_export));
    return made;
  }
  TSR_ASSIGN_OR_RETURN(Settings settings, read_settings(options));
  TSR_RETURN_IF_ERROR(check_file_name(out));
  if (is_adapter_folder(in)) {
    TSR_ASSIGN_OR_RETURN(auto model, load_shared_model(in));
    return create(contents_of(std::move(model)), out, options);
  }
  TSR_ASSIGN_OR_RETURN(auto source, open_model_file(in));
  TSR_RETURN_IF_ERROR(check_not_read(source->paths(), out));
  TSR_RETURN_IF_ERROR(AtomicFile::check(out));
  std::unique_ptr<Conversion> made(new Conversion(out, std::move(settings)));
  made->source_ = std::move(source);
  made->in_ = in;
  return made;
}

Result<std::unique_ptr<Conversion>> Conversion::create(ModelContents contents, const std::string& out,
                                                       const Options& options) {
  if (is_gguf_name(out)) {
    TSR_ASSIGN_OR_RETURN(const Options of_export, gguf_options(options));
    std::unique_ptr<Conversion> made(new Conversion(out, {}));
    TSR_ASSIGN_OR_RETURN(made->export_, Export::create(std::move(contents), out, of_export));
    return made;
  }
  TSR_ASSIGN_OR_RETURN(Settings settings, read_settings(options));
  TSR_RETURN_IF_ERROR(check_file_name(out));
  TSR_RETURN_IF_ERROR(check_not_read(contents.read_paths, out, contents.resumed));
  TSR_RETURN_IF_ERROR(AtomicFile::check(out));
  std::unique_ptr<Conversion> made(new Conversion(out, std::move(settings)));
  made->contents_ = std::move(contents);
  made->in_ = "the model";
  return made;
}

double Conversion::done() const {
  if (export_) return export_->done();
  if (phase_ >= Phase::kReady) return 1;
  if (phase_ == Phase::kOpen) return 0;
  const int64_t all = kOpenBytes + all_bytes_ + kIndexBytes + (settings_.verify ? all_bytes_ : 0);
  const int64_t done =
      kOpenBytes + written_bytes_ + (phase_ > Phase::kIndex ? kIndexBytes : 0) + verified_bytes_;
  return static_cast<double>(done) / static_cast<double>(all);
}

WorkProgress Conversion::progress() const {
  if (export_) return export_->progress();
  const auto label = [this] {
    switch (phase_) {
      case Phase::kOpen: return "opening";
      case Phase::kWrite:
      case Phase::kIndex: return "writing";
      case Phase::kVerify: return "checking";
      case Phase::kReady:
      case Phase::kFinished: return "";
    }
    return "";
  };
  return {done(), written_bytes_ + verified_bytes_, settings_.verify ? 2 * all_bytes_ : all_bytes_, "bytes", label()};
}

Status Conversion::step() {
  if (export_) return export_->step();
  if (is_broken_)
    return Status(StatusCode::kFailedPrecondition,
                  format("{}: the conversion failed before; begin another", out_));
  switch (phase_) {
    case Phase::kOpen: return open();
    case Phase::kWrite: return write_slices();
    case Phase::kIndex: return finish_index();
    case Phase::kVerify: return verify_slices();
    case Phase::kReady:
    case Phase::kFinished: return {};
  }
  return {};
}

template <class Work>
Status Conversion::change_file(Work&& work) {
  is_broken_ = true;
  TSR_RETURN_IF_ERROR(work());
  is_broken_ = false;
  return {};
}

Result<OpenedModel> Conversion::open_source() {
  if (contents_) return opened_in_memory(*contents_);
  TSR_ASSIGN_OR_RETURN(OpenedModel opened, open_model(source_));
  TSR_RETURN_IF_ERROR(check_not_read(opened.model.source->paths(), out_));  // also covers other parts of a split model
  return opened;
}

Status Conversion::check_source() const {
  const ByteSource* source = opened_->model.source.get();
  return source == nullptr ? Status() : source->unchanged();
}

Status Conversion::open() {
  const auto work = [&]() -> Result<OpenedModel> {
    TSR_ASSIGN_OR_RETURN(OpenedModel opened, open_source());
    // Checks that the new file will open: tokenizer errors are reported before writing.
    if (opened.model.tokenizer) TSR_RETURN_IF_ERROR(Tokenizer::create(*opened.model.tokenizer).status());
    std::ranges::sort(opened.parameters, {}, &TensorSource::name);
    if (settings_.quantization) TSR_RETURN_IF_ERROR(quantize(opened));
    return opened;
  };
  Result<OpenedModel> opened = work();
  if (!opened.ok()) return opened.status().with_context(in_);
  opened_ = std::move(opened).value();
  TSR_ASSIGN_OR_RETURN(writer_, ModelWriter::create(opened_->model, out_, settings_.save));
  for (const TensorSource& parameter : opened_->parameters) all_bytes_ += bytes(parameter.type);
  phase_ = Phase::kWrite;
  return {};
}

Status Conversion::quantize(OpenedModel& opened) {
  if (opened.parameters.empty())
    return Status(StatusCode::kInvalidArgument,
                  "the file describes a model and holds no values: there is nothing to quantise");
  TSR_ASSIGN_OR_RETURN(quantization_, Quantization::create(opened.model, *settings_.quantization));
  opened.model.graph = quantization_->graph();
  opened.model.metadata["quantization"] = settings_.quantization->mix.type;
  for (TensorSource& parameter : opened.parameters) parameter = quantization_->encode(std::move(parameter));
  return {};
}

Status Conversion::write_slices() {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point end = Clock::now() + kStepTime;
  for (int i = 0; i < kStepSlices && (next_ < opened_->parameters.size() || writer_->is_writing()); ++i) {
    cancellation_point();
    TSR_RETURN_IF_ERROR(write_slice());
    if (Clock::now() >= end) break;
  }
  if (next_ == opened_->parameters.size() && !writer_->is_writing()) phase_ = Phase::kIndex;
  return {};
}

Status Conversion::write_slice() {
  return change_file([&]() -> Status {
    if (!writer_->is_writing()) {
      TSR_RETURN_IF_ERROR(check_source());
      TSR_RETURN_IF_ERROR(writer_->begin(opened_->parameters[next_]));
      ++next_;
    }
    const Status status = writer_->write_slice();
    const bool is_of_values =
        status.code() == StatusCode::kCorrupt || status.code() == StatusCode::kInvalidArgument;
    if (!status.ok()) return is_of_values ? status.with_context(in_) : status;
    // A tensor written again, uncompressed, counts once.
    const bool is_whole = !writer_->is_writing();
    const int64_t position = is_whole ? bytes(opened_->parameters[next_ - 1].type) : writer_->position();
    if (position > tensor_bytes_) written_bytes_ += position - std::exchange(tensor_bytes_, position);
    if (is_whole) tensor_bytes_ = 0;
    return {};
  });
}

Status Conversion::finish_index() {
  return change_file([&]() -> Status {
    TSR_RETURN_IF_ERROR(check_source());
    TSR_RETURN_IF_ERROR(writer_->finish());
    next_ = 0;
    phase_ = settings_.verify && !opened_->parameters.empty() ? Phase::kVerify : Phase::kReady;
    return {};
  });
}

Status Conversion::verify_slices() {
  if (!written_) {
    TSR_ASSIGN_OR_RETURN(auto written, open_file(writer_->temporary_path()));
    TSR_ASSIGN_OR_RETURN(written_, open_tsr(std::move(written)));
  }
  for (int i = 0; i < kStepSlices && phase_ == Phase::kVerify; ++i) {
    cancellation_point();
    TSR_RETURN_IF_ERROR(verify_slice());
  }
  return {};
}

Status Conversion::verify_slice() {
  if (!reader_) reader_.emplace(written_->parameters[next_], true);
  buffer_.resize(reader_->next_bytes());
  const auto slice = reader_->next(buffer_);
  if (!slice.ok()) return slice.status().with_context(out_);
  verified_bytes_ += static_cast<int64_t>(slice->size());
  if (!reader_->is_done()) return {};
  reader_.reset();
  if (++next_ < written_->parameters.size()) return {};
  written_.reset();
  phase_ = Phase::kReady;
  return {};
}

Result<std::string> Conversion::finish() {
  if (export_) {
    TSR_ASSIGN_OR_RETURN(const std::string exported, export_->finish());
    Json report = Json::parse(exported);
    report["out"] = {{"format", "gguf"}, {"bytes", report["bytes"]}, {"stored", report["stored"]}};
    for (const char* key : {"format", "bytes", "files", "stored"}) report.erase(key);
    return dump(report);
  }
  TSR_RETURN_IF_ERROR(check_can_finish(
      out_, "conversion", {phase_ == Phase::kFinished, phase_ == Phase::kReady, is_broken_, done()}));
  const Model& model = opened_->model;
  const auto architecture = model.metadata.find("architecture");
  int64_t elements = 0;
  for (const TensorId id : model.graph.tensors_of_kind(TensorKind::kParameter))
    elements += model.graph.type(id).shape.elements();
  Json report = {{"architecture", architecture == model.metadata.end() ? "" : architecture->second},
                 {"parameters", elements},
                 {"in", origin_json(model)},
                 {"out",
                  {{"format", "tsr"},
                   {"bytes", writer_->bytes()},
                   {"stored", stored_json(stored_tensors(writer_->records()))}}}};
  if (quantization_) report["quantization"] = quantization_json(*settings_.quantization, *quantization_);
  std::string text = dump(report);
  TSR_RETURN_IF_ERROR(change_file([&] { return writer_->commit(); }));
  phase_ = Phase::kFinished;
  opened_.reset();
  contents_.reset();
  return text;
}

Result<std::string> quantize_model(std::shared_ptr<const SharedModel> model, const std::string& path,
                                   const Options& options) {
  if (options.find("type") == options.end())
    return Status(StatusCode::kInvalidArgument,
                  "option type is missing: the type to quantise to, such as q4_k_m or q8_0");
  TSR_ASSIGN_OR_RETURN(const auto work, Conversion::create(contents_of(std::move(model)), path, options));
  while (work->done() < 1) TSR_RETURN_IF_ERROR(work->step());
  TSR_ASSIGN_OR_RETURN(const std::string report, work->finish());
  return dump(Json::parse(report)["quantization"]);
}

}  // namespace tessera
