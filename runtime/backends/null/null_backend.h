// The null backend: runs whole programs without computing anything. It has virtual devices with invented
// rates, a clock per stream that advances by the predicted times, and one debug log line per instruction. It
// shows plans and schedules for devices that nobody has, and is the skeleton to copy for a new backend
// (docs/guides/add-a-backend.md).
#pragma once

#include "runtime/backend_abi.h"

extern "C" const tsr_backend_api* tsr_null_backend_entry(const tsr_host_api* host);
