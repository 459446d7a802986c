// The CPU backend: virtual devices that share the cores and the host's thread pool. A device is an ordinal,
// memory is anonymous mappings, and a stream executes on the thread that issues, so every call is done when
// it returns.
#pragma once

#include "runtime/backend_abi.h"

// The built-in entry; a program that links this backend hands it to BackendRegistry.
extern "C" const tsr_backend_api* tsr_cpu_backend_entry(const tsr_host_api* host);
