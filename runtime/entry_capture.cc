#include "runtime/entry_capture.h"

#include "graph/base/text.h"

namespace tessera {

namespace {
constexpr int32_t kInfo = 1, kWarning = 2;  // levels of the log
}  // namespace

Status EntryCapture::run(std::span<CommEnd* const> ends) {
  if (graph_.wants_capture()) try_capture(ends);
  if (!why_not_.empty() && graph_.has_run()) tell_refusal(std::exchange(why_not_, {}));
  if (graph_.is_captured()) {
    counts_.add(1);
    return graph_.launch(streams_[0]);
  }
  const bool counts = others_ != nullptr && !graph_.has_run();
  if (counts) counts_.begin(api_, ends);
  TSR_RETURN_IF_ERROR(issue());
  if (counts) counts_.end(api_);
  graph_.note_run();
  return {};
}

Status EntryCapture::issue() {
  order_.begin();
  return issue_(order_);
}

void EntryCapture::tell_refusal(std::string_view why) {
  tell_(kInfo, format("not captured, and is issued kernel by kernel: {}", why));
}

void EntryCapture::try_capture(std::span<CommEnd* const> ends) {
  if (others_ != nullptr && !others_->is_possible()) {
    graph_.give_up();
    return tell_refusal("another rank sends, receives or uses a file in it");
  }
  if (others_ != nullptr && !others_->all(counts_.may_all_be_captured())) {
    graph_.give_up();
    return tell_refusal("it communicates by way of the host, or through a library that cannot be captured");
  }
  if (others_ != nullptr) counts_.begin(api_, ends);
  Status status = graph_.capture(streams_, [&] { return issue(); });
  if (others_ != nullptr) {
    counts_.end(api_);
    counts_.add(-1);  // it is counted whenever it is launched
    if (!others_->all(status.ok()) && status.ok()) {
      graph_.give_up();
      status = Status(StatusCode::kAborted, "it could not be on another rank");
    }
  }
  if (status.ok()) return tell_(kInfo, "captured: it is one launch from here on");
  tell_(kWarning, format("not captured, and is issued kernel by kernel: {}", status.to_string()));
}

void EntryCapture::stop() {
  if (others_ != nullptr) others_->stop();
}

void EntryCapture::leave_comms() {
  if (others_ == nullptr) return;
  graph_.forget();
  counts_ = {};
  others_->renew();
}

}  // namespace tessera
