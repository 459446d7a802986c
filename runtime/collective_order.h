// CollectiveOrder: the collectives of one rank follow one another on its device, whatever their streams, as
// they were issued. Streams and branches of a graph have no order among them, and kernels of two
// communicators that begin in one order here and in another there may wait for each other's room for ever.
// Ranks issue in orders that agree (graph/analysis/issue_order.h), so this leaves nothing to wait in a
// circle.
#pragma once

#include "graph/base/result.h"
#include "runtime/backend_abi.h"

namespace tessera {

class CollectiveOrder {
 public:
  CollectiveOrder(const tsr_backend_api& api, tsr_abi_device* device) : api_(api), device_(device) {}
  ~CollectiveOrder();
  CollectiveOrder(const CollectiveOrder&) = delete;
  CollectiveOrder& operator=(const CollectiveOrder&) = delete;

  void begin() { last_ = nullptr; }  // nothing that was issued so far counts
  // Around the issue of one collective to `stream`.
  Status before(tsr_abi_stream* stream);
  Status after(tsr_abi_stream* stream);

 private:
  const tsr_backend_api& api_;
  tsr_abi_device* device_;
  tsr_abi_event* done_ = nullptr;   // of the last one
  tsr_abi_stream* last_ = nullptr;  // where that went
};

}  // namespace tessera
