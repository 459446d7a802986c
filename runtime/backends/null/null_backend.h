// The null backend: runs whole programs without computing anything. Virtual devices with invented rates, a
// clock per stream that advances by the predicted times, and one debug log line per instruction. Plans and
// schedules can be looked at for devices that nobody has, and it is the skeleton to copy for a new backend
// (docs/add-a-backend.md).
#pragma once

#include "runtime/backend_abi.h"

extern "C" const tsr_backend_api* tsr_null_backend_entry(const tsr_host_api* host);
