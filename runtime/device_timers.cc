#include "runtime/device_timers.h"

#include <chrono>
#include <cstddef>

#include "runtime/host_services.h"

namespace tessera {

namespace {

bool runs_on_host(const Step& step) {
  return step.kind == Step::Kind::kFileRead || step.kind == Step::Kind::kFileWrite;
}

}  // namespace

int64_t host_now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

bool DeviceTimers::are_there(const tsr_backend_api& api) {
  return api.struct_size >= offsetof(tsr_backend_api, event_elapsed) + sizeof(api.event_elapsed) &&
         api.timed_event_create != nullptr && api.event_elapsed != nullptr;
}

DeviceTimers::~DeviceTimers() {
  for (tsr_abi_event* event : events_) api_.event_destroy(event);
}

Status DeviceTimers::add(Step& step) {
  if (runs_on_host(step) || step.kind == Step::Kind::kFused) return {};
  for (tsr_abi_event** event : {&step.begins, &step.ends}) {
    TSR_RETURN_IF_ERROR(take_error(api_.timed_event_create(device_, event)));
    events_.push_back(*event);
  }
  return {};
}

Status DeviceTimers::begin(tsr_abi_stream* stream) {
  if (run_began_ == nullptr) {
    TSR_RETURN_IF_ERROR(take_error(api_.timed_event_create(device_, &run_began_)));
    events_.push_back(run_began_);
  }
  TSR_RETURN_IF_ERROR(take_error(api_.event_record(run_began_, stream)));
  run_began_ns_ = host_now_ns();
  return {};
}

// A launch of several instructions is the first one's; the others are over when it is.
Status DeviceTimers::read(int32_t entry, const std::vector<std::pair<RankStream*, int32_t>>& steps,
                          int64_t origin_ns) {
  for (const auto& [stream, position] : steps) {
    const Step& step = stream->steps[static_cast<size_t>(entry)][static_cast<size_t>(position)];
    if (runs_on_host(step)) continue;
    RankStream::Record record{entry, step.instruction, 0, 0};
    if (step.kind == Step::Kind::kFused) {
      record.begin_ns = record.end_ns = stream->records.back().end_ns;
    } else {
      TSR_RETURN_IF_ERROR(take_error(api_.event_elapsed(run_began_, step.begins, &record.begin_ns)));
      TSR_RETURN_IF_ERROR(take_error(api_.event_elapsed(run_began_, step.ends, &record.end_ns)));
      record.begin_ns += run_began_ns_ - origin_ns;
      record.end_ns += run_began_ns_ - origin_ns;
    }
    stream->note(record);
  }
  return {};
}

}  // namespace tessera
