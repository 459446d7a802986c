#include "engine/model/loading.h"

#include <algorithm>
#include <utility>

#include "engine/model/adapter_folder.h"
#include "engine/model/adapters.h"
#include "graph/base/cancellation.h"
#include "graph/base/text.h"

namespace tessera {
namespace {

constexpr int64_t kStepBytes = int64_t{16} << 20;
// Progress shares, in bytes, of opening the file and of making graph and tokenizer.
constexpr int64_t kOpenBytes = int64_t{32} << 20, kMakeBytes = int64_t{8} << 20;

}  // namespace

Result<std::unique_ptr<Loading>> Loading::create(std::shared_ptr<const ByteSource> source, std::string name,
                                                 const Options& options) {
  OptionReader reader(options, "loading");
  const bool verify = reader.flag("verify", false);
  TSR_RETURN_IF_ERROR(reader.finish());
  return std::unique_ptr<Loading>(new Loading(std::move(source), std::move(name), verify));
}

Result<std::unique_ptr<Loading>> Loading::create(const std::string& path, const Options& options) {
  std::string file = path;
  const bool are_adapters = is_adapter_folder(path);
  if (are_adapters) {
    TSR_ASSIGN_OR_RETURN(file, base_of_adapters(path));
  }
  TSR_ASSIGN_OR_RETURN(auto source, open_model_file(file));
  TSR_ASSIGN_OR_RETURN(auto loading, create(std::move(source), file, options));
  if (are_adapters) loading->adapters_ = path;
  return loading;
}

double Loading::done() const {
  if (model_ || is_taken_) return 1;
  if (!opened_) return 0;
  return static_cast<double>(kOpenBytes + read_bytes_) /
         static_cast<double>(kOpenBytes + all_bytes_ + kMakeBytes);
}

WorkProgress Loading::progress() const {
  const bool is_done = done() == 1;
  return {done(), read_bytes_, all_bytes_, "bytes", is_done ? "" : opened_ ? "reading" : "opening"};
}

Status Loading::step() {
  const auto work = [&]() -> Status {
    if (model_ || is_taken_) return {};
    if (!opened_) return open();
    if (next_ < opened_->parameters.size()) return read_slices();
    std::shared_ptr<const Tokenizer> tokenizer;
    if (opened_->model.tokenizer) {
      TSR_ASSIGN_OR_RETURN(tokenizer, Tokenizer::create(*opened_->model.tokenizer));
    }
    auto made = std::make_shared<SharedModel>(std::move(opened_->model), 0, std::move(tokenizer));
    opened_.reset();
    if (!adapters_.empty()) {
      TSR_ASSIGN_OR_RETURN(made, load_adapters(*made, adapters_, {}));
    }
    model_ = std::move(made);
    return {};
  };
  Status status = work();
  return status.ok() || name_.empty() ? status : status.with_context(name_);
}

Status Loading::open() {
  TSR_ASSIGN_OR_RETURN(OpenedModel opened, open_model(source_));
  if (verify_ && opened.model.origin.format != "tsr")
    return Status(StatusCode::kUnsupported,
                  "files of other projects hold no checksums; import them to a .tsr file, which does");
  for (const TensorSource& parameter : opened.parameters)
    if (verify_ || parameter.in_place.data.empty()) all_bytes_ += bytes(parameter.type);
  opened_ = std::move(opened);
  return {};
}

Status Loading::read_slices() {
  const int64_t end = read_bytes_ + kStepBytes;
  while (next_ < opened_->parameters.size() && read_bytes_ < end) {
    cancellation_point();
    TSR_RETURN_IF_ERROR(read_slice());
  }
  return {};
}

Status Loading::read_slice() {
  const TensorSource& parameter = opened_->parameters[next_];
  const bool stays = !parameter.in_place.data.empty();
  if (!stays || verify_) {
    if (!reader_) {
      value_ = stays ? parameter.in_place : HostTensor::zeros(parameter.type, &contents_);
      if (stays) contents_ = {};
      reader_.emplace(parameter, false);
    }
    std::span<std::byte> into;
    if (stays) {
      buffer_.resize(reader_->next_bytes());
      into = buffer_;
    } else {
      into = contents_.subspan(static_cast<size_t>(reader_->position()), reader_->next_bytes());
    }
    TSR_ASSIGN_OR_RETURN(const std::span<const std::byte> slice, reader_->next(into));
    if (!stays && slice.data() != into.data()) std::ranges::copy(slice, into.begin());
    read_bytes_ += static_cast<int64_t>(slice.size());
    if (!reader_->is_done()) return {};
  } else {
    value_ = parameter.in_place;
  }
  opened_->model.parameters.emplace(parameter.name, std::exchange(value_, {}));
  reader_.reset();
  ++next_;
  return {};
}

Result<std::shared_ptr<SharedModel>> Loading::finish() {
  if (is_taken_)
    return Status(StatusCode::kFailedPrecondition, "the model was taken already, by an earlier finish");
  if (!model_)
    return Status(
        StatusCode::kFailedPrecondition,
        format("{} % of the model are loaded: step until 1 is done", static_cast<int64_t>(100 * done())));
  is_taken_ = true;
  return std::exchange(model_, nullptr);
}

Result<std::shared_ptr<SharedModel>> load_shared_model(std::shared_ptr<const ByteSource> source,
                                                       std::string name) {
  TSR_ASSIGN_OR_RETURN(const auto loading, Loading::create(std::move(source), std::move(name), {}));
  while (loading->done() < 1) TSR_RETURN_IF_ERROR(loading->step());
  return loading->finish();
}

Result<std::shared_ptr<SharedModel>> load_shared_model(const std::string& path) {
  TSR_ASSIGN_OR_RETURN(const auto loading, Loading::create(path, {}));
  while (loading->done() < 1) TSR_RETURN_IF_ERROR(loading->step());
  return loading->finish();
}

}  // namespace tessera
