#include "runtime/collective_order.h"

#include "runtime/host_services.h"

namespace tessera {

CollectiveOrder::~CollectiveOrder() {
  if (done_ != nullptr) api_.event_destroy(done_);
}

Status CollectiveOrder::before(tsr_abi_stream* stream) {
  if (last_ == nullptr || last_ == stream) return {};
  return take_error(api_.stream_wait(stream, done_));
}

Status CollectiveOrder::after(tsr_abi_stream* stream) {
  if (done_ == nullptr) TSR_RETURN_IF_ERROR(take_error(api_.event_create(device_, &done_)));
  last_ = stream;
  return take_error(api_.event_record(done_, stream));
}

}  // namespace tessera
