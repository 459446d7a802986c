// Phases: open the source and choose the contents, write tensors slice by slice, write texts. `finish` renames the output
// into place.
#include "engine/model/export.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <map>
#include <system_error>
#include <thread>
#include <utility>

#include "engine/base/read_paths.h"
#include "engine/base/written_state.h"
#include "engine/model/adapter_folder.h"
#include "engine/model/adapters.h"
#include "engine/model/loading.h"
#include "engine/model/model_contents.h"
#include "engine/model/quantize.h"
#include "graph/base/cancellation.h"
#include "graph/base/text.h"
#include "serialize/export/gguf_adapter_export.h"
#include "serialize/export/gguf_export.h"
#include "serialize/output_name.h"
#include "text/json.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

constexpr auto kStepTime = std::chrono::milliseconds(50);  // no further slice begins after this
constexpr uint64_t kOpenBytes = uint64_t{32} << 20;        // cost of opening in bytes

std::string_view format_name(ExportFormat format) {
  switch (format) {
    case ExportFormat::kHuggingface: return "hf";
    case ExportFormat::kGguf:
    case ExportFormat::kGgufAdapter: return "gguf";
    case ExportFormat::kPeft: return "peft";
  }
  return "";
}

bool is_file(ExportFormat format) {
  return format == ExportFormat::kGguf || format == ExportFormat::kGgufAdapter;
}

// Adds the path of the adapters' base, if it is a file or folder without adapters.
PeftExportSettings with_base(PeftExportSettings settings, const Model& model, const std::string& out) {
  const std::vector<std::string> paths = model.source ? model.source->paths() : std::vector<std::string>();
  if (paths.empty()) return settings;
  const auto source = open_model_file(paths.front());  // the first of several parts
  if (!source.ok()) return settings;
  const Result<OpenedModel> opened = open_model(*source);
  if (!opened.ok() || adapter_summary(opened->model.graph)) return settings;
  std::error_code failed;
  fs::path base = fs::absolute(paths.front(), failed).lexically_normal();
  if (failed) return settings;
  if (base.extension() == ".safetensors") base = base.parent_path();
  settings.base = base.string();
  const fs::path folder = fs::absolute(out, failed).lexically_normal();
  if (!failed)
    settings.relative_base =
        fs::path(base).lexically_relative(folder.has_filename() ? folder : folder.parent_path()).string();
  return settings;
}

AtomicFolder::MayReplace may_replace(ExportFormat format) {
  return format == ExportFormat::kPeft ? may_replace_peft : may_replace_huggingface;
}

}  // namespace

Result<Export::Settings> Export::read_settings(const Options& options, const std::string& out) {
  OptionReader reader(options, "export");
  Settings settings;
  const std::string word = reader.choice("format", is_gguf_name(out) ? "gguf" : "hf", {"hf", "gguf", "peft"});
  const bool is_gguf = word == "gguf", is_peft = word == "peft";
  settings.format = is_gguf   ? ExportFormat::kGguf
                    : is_peft ? ExportFormat::kPeft
                              : ExportFormat::kHuggingface;
  settings.merged = reader.flag("merged", false);
  const bool adapters = reader.flag("adapters", is_peft);
  if (adapters && word == "hf")
    return Status(
        StatusCode::kInvalidArgument,
        "export: adapters is 1 with format hf, which holds whole models; wanted format peft or gguf");
  if (settings.merged && adapters)
    return Status(StatusCode::kInvalidArgument,
                  "export: merged is 1, and adapters alone are to be written; wanted one of the two");
  settings.tokenizer = reader.flag("tokenizer", true);
  settings.huggingface.tokenizer = settings.tokenizer;
  if (is_gguf && adapters) {
    settings.format = ExportFormat::kGgufAdapter;
    reader.accept({"threads"});  // adapters are not converted
    TSR_RETURN_IF_ERROR(reader.finish());
    return settings;
  }
  if (is_gguf) {
    TSR_ASSIGN_OR_RETURN(settings.quantization, read_quantization_settings(reader));
    return settings;
  }
  const std::string type = reader.word("type");
  settings.huggingface.shard_bytes = reader.bytes("shard_bytes", kHuggingfaceShardBytes);
  const int64_t threads = reader.i64("threads", 0, 0, 1024);
  TSR_RETURN_IF_ERROR(reader.finish());
  if (settings.huggingface.shard_bytes < 1)
    return Status(StatusCode::kInvalidArgument, "shard_bytes is 0, wanted 1 or more");
  const auto cores = static_cast<int64_t>(std::thread::hardware_concurrency());
  settings.huggingface.threads = static_cast<int32_t>(threads == 0 ? std::max<int64_t>(1, cores) : threads);
  if (type.empty()) return settings;
  settings.huggingface.type = dtype_from_name(type);
  constexpr DType kTypes[] = {DType::kF32, DType::kBF16, DType::kF16};
  if (!settings.huggingface.type || std::ranges::find(kTypes, *settings.huggingface.type) == std::end(kTypes))
    return Status(
        StatusCode::kInvalidArgument,
        format("type is '{}'; a Hugging Face folder holds f32, bf16 or f16 (blocks: format gguf)", type));
  settings.peft.type = settings.huggingface.type;
  return settings;
}

Status Export::check_out(const std::string& out, ExportFormat format) {
  TSR_RETURN_IF_ERROR(is_file(format) ? check_gguf_name(out) : check_folder_name(out));
  return is_file(format) ? AtomicFile::check(out) : AtomicFolder::check(out, may_replace(format));
}

Result<std::unique_ptr<Export>> Export::create(const std::string& in, const std::string& out,
                                               const Options& options) {
  TSR_ASSIGN_OR_RETURN(Settings settings, read_settings(options, out));
  if (is_adapter_folder(in)) {
    TSR_RETURN_IF_ERROR(check_out(out, settings.format));
    TSR_ASSIGN_OR_RETURN(const auto model, load_shared_model(in));
    return create(model, out, options);
  }
  TSR_ASSIGN_OR_RETURN(auto source, open_model_file(in));
  TSR_RETURN_IF_ERROR(check_not_read(source->paths(), out));
  TSR_RETURN_IF_ERROR(check_out(out, settings.format));
  if (settings.merged) {
    TSR_ASSIGN_OR_RETURN(const auto model, load_shared_model(std::move(source), in));
    return create(model, out, options);
  }
  auto made = std::unique_ptr<Export>(new Export(in, out, std::move(settings)));
  made->source_ = std::move(source);
  return made;
}

Result<std::unique_ptr<Export>> Export::create(std::shared_ptr<SharedModel> model, const std::string& out,
                                               const Options& options) {
  TSR_ASSIGN_OR_RETURN(Settings settings, read_settings(options, out));
  TSR_RETURN_IF_ERROR(check_not_read(model->read_paths(), out, model->resumed()));
  TSR_RETURN_IF_ERROR(check_out(out, settings.format));
  if (settings.merged && adapter_summary(model->graph())) {
    TSR_ASSIGN_OR_RETURN(model, merge_adapters(*model));
  }
  auto made = std::unique_ptr<Export>(new Export("", out, std::move(settings)));
  made->model_ = std::move(model);
  return made;
}

Result<std::unique_ptr<Export>> Export::create(ModelContents given, const std::string& out,
                                               const Options& options) {
  TSR_ASSIGN_OR_RETURN(Settings settings, read_settings(options, out));
  TSR_RETURN_IF_ERROR(check_not_read(given.read_paths, out, given.resumed));
  TSR_RETURN_IF_ERROR(check_out(out, settings.format));
  auto made = std::unique_ptr<Export>(new Export("", out, std::move(settings)));
  made->given_ = std::move(given);
  return made;
}

double Export::done() const {
  if (phase_ >= Phase::kReady) return 1;
  if (phase_ == Phase::kOpen) return 0;
  const uint64_t position = writer_ ? writer_->position() : 0;
  const double share = static_cast<double>(kOpenBytes + written_bytes_ + position) /
                       static_cast<double>(kOpenBytes + all_bytes_);
  return std::min(share, 0.999);  // the rest: small files
}

WorkProgress Export::progress() const {
  const uint64_t written = phase_ >= Phase::kReady ? all_bytes_ : written_bytes_ + (writer_ ? writer_->position() : 0);
  return {done(), static_cast<int64_t>(std::min(written, all_bytes_)), static_cast<int64_t>(all_bytes_), "bytes",
          phase_ == Phase::kOpen ? "opening" : phase_ == Phase::kWrite ? "writing" : ""};
}

Status Export::step() {
  if (is_broken_)
    return Status(StatusCode::kFailedPrecondition,
                  format("{}: the export failed before; begin another", out_));
  switch (phase_) {
    case Phase::kOpen: return open();
    case Phase::kWrite: return write_slices();
    case Phase::kReady:
    case Phase::kFinished: return {};
  }
  return {};
}

Result<OpenedModel> Export::open_source() const {
  if (source_) {
    TSR_ASSIGN_OR_RETURN(OpenedModel opened, open_model(source_));
    TSR_RETURN_IF_ERROR(check_not_read(opened.model.source->paths(), out_));  // also covers other parts of a split model
    return opened;
  }
  return opened_in_memory(given_ ? *given_ : contents_of(model_));
}

Result<ExportContents> Export::contents(OpenedModel& opened) {
  const size_t parameters = opened.model.graph.tensors_of_kind(TensorKind::kParameter).size();
  if (opened.parameters.size() != parameters)
    return Status(StatusCode::kInvalidArgument,
                  format("the file has {} values for the {} parameters of its model",
                         opened.parameters.size(), parameters));
  if (std::optional<TokenizerData>& tokenizer = opened.model.tokenizer) {  // validated and completed
    TSR_ASSIGN_OR_RETURN(const auto made, Tokenizer::create(std::move(*tokenizer)));
    tokenizer = made->data();
  }
  if (settings_.format == ExportFormat::kGgufAdapter) return gguf_adapter_contents(opened);
  if (settings_.format == ExportFormat::kPeft)
    return peft_contents(opened, with_base(settings_.peft, opened.model, out_));
  if (settings_.format == ExportFormat::kHuggingface)
    return huggingface_contents(opened, settings_.huggingface);
  if (settings_.quantization) {
    TSR_ASSIGN_OR_RETURN(quantization_, Quantization::create(opened.model, *settings_.quantization));
    for (TensorSource& parameter : opened.parameters) parameter = quantization_->encode(std::move(parameter));
  }
  return gguf_contents(opened, {.mix = settings_.quantization ? settings_.quantization->mix.type : "",
                                .tokenizer = settings_.tokenizer});
}

Status Export::open() {
  const auto work = [&]() -> Status {
    TSR_ASSIGN_OR_RETURN(opened_, open_source());
    TSR_ASSIGN_OR_RETURN(contents_, contents(*opened_));
    return {};
  };
  const Status status = work();
  if (!status.ok()) {
    is_broken_ = true;  // sources may be released
    return in_.empty() ? status : status.with_context(in_);
  }
  for (const TensorFile& file : contents_.files) all_bytes_ += file.bytes;
  if (contents_.is_folder) {
    TSR_ASSIGN_OR_RETURN(AtomicFolder folder, AtomicFolder::create(out_, may_replace(settings_.format)));
    folder_.emplace(std::move(folder));
  }
  phase_ = Phase::kWrite;
  return {};
}

std::string Export::path_of(const std::string& name) const {
  return folder_ ? folder_->temporary_path() + "/" + name : out_;
}

Status Export::create_folder_of(const std::string& name) const {
  const size_t slash = name.rfind('/');
  if (slash == name.npos) return {};
  const std::string path = path_of(name.substr(0, slash));
  std::error_code error;
  std::filesystem::create_directory(path, error);
  return error ? Status(StatusCode::kIo, format("{}: cannot create: {}", path, error.message())) : Status();
}

Status Export::write_slices() {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point end = Clock::now() + kStepTime;
  while (phase_ == Phase::kWrite) {
    cancellation_point();
    is_broken_ = true;
    TSR_RETURN_IF_ERROR(write_slice());
    is_broken_ = false;
    if (Clock::now() >= end) break;
  }
  return {};
}

Status Export::write_slice() {
  if (!writer_) {
    if (next_ == contents_.files.size()) return write_texts();
    if (opened_->model.source) TSR_RETURN_IF_ERROR(opened_->model.source->unchanged());
    const TensorFile& file = contents_.files[next_++];
    TSR_RETURN_IF_ERROR(create_folder_of(file.name));
    TSR_ASSIGN_OR_RETURN(TensorFileWriter writer, TensorFileWriter::create(file, path_of(file.name)));
    writer_.emplace(std::move(writer));
  }
  const Status status = writer_->write_slice();
  const bool is_of_values =
      status.code() == StatusCode::kCorrupt || status.code() == StatusCode::kInvalidArgument;
  if (!status.ok()) return is_of_values && !in_.empty() ? status.with_context(in_) : status;
  if (!writer_->is_done()) return {};
  if (opened_->model.source) TSR_RETURN_IF_ERROR(opened_->model.source->unchanged());
  if (!contents_.is_folder) {
    phase_ = Phase::kReady;
    return {};
  }
  written_bytes_ += contents_.files[next_ - 1].bytes;
  TSR_RETURN_IF_ERROR(writer_->commit());  // inside the folder, which is not in place yet
  writer_.reset();
  return {};
}

Status Export::write_texts() {
  for (const auto& [name, text] : contents_.texts) {
    TSR_RETURN_IF_ERROR(create_folder_of(name));
    TSR_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::create(path_of(name)));
    TSR_RETURN_IF_ERROR(file.append(std::as_bytes(std::span(text))));
    TSR_RETURN_IF_ERROR(file.commit());
  }
  phase_ = Phase::kReady;
  return {};
}

Result<std::string> Export::finish() {
  TSR_RETURN_IF_ERROR(check_can_finish(
      out_, "export", {phase_ == Phase::kFinished, phase_ == Phase::kReady, is_broken_, done()}));
  const Model& model = opened_->model;
  const auto architecture = model.metadata.find("architecture");
  int64_t elements = 0, out_bytes = 0;
  for (const TensorId id : model.graph.tensors_of_kind(TensorKind::kParameter))
    elements += model.graph.type(id).shape.elements();
  Json names = Json::array();
  std::map<std::string, std::pair<int64_t, int64_t>> stored;  // tensors and bytes, by type
  for (const TensorFile& file : contents_.files) {
    if (!file.name.empty()) names.push_back(file.name);
    out_bytes += static_cast<int64_t>(file.bytes);
    for (const PlacedTensor& tensor : file.tensors) {
      auto& [tensors, tensor_bytes] = stored[to_text(tensor.source.type.dtype)];
      ++tensors;
      tensor_bytes += bytes(tensor.source.type);
    }
  }
  for (const auto& [name, text] : contents_.texts) {
    names.push_back(name);
    out_bytes += static_cast<int64_t>(text.size());
  }
  Json types = Json::array();
  for (const auto& [type, sum] : stored)
    types.push_back({{"type", type}, {"tensors", sum.first}, {"bytes", sum.second}});
  Json report = {{"architecture", architecture == model.metadata.end() ? "" : architecture->second},
                 {"parameters", elements},
                 {"in", origin_json(model)},
                 {"format", format_name(settings_.format)},
                 {"bytes", out_bytes},
                 {"files", std::move(names)},
                 {"stored", std::move(types)},
                 {"notes", contents_.notes}};
  if (quantization_) report["quantization"] = quantization_json(*settings_.quantization, *quantization_);
  std::string text = dump(report);
  is_broken_ = true;
  TSR_RETURN_IF_ERROR(folder_ ? folder_->commit() : writer_->commit());
  is_broken_ = false;
  phase_ = Phase::kFinished;
  return text;
}

}  // namespace tessera
