#include "capi/engine/built_in_backends.h"

// Defined in runtime/backends/cpu and runtime/backends/null.
extern "C" const tsr_backend_api* tsr_cpu_backend_entry(const tsr_host_api* host);
extern "C" const tsr_backend_api* tsr_null_backend_entry(const tsr_host_api* host);

namespace tessera {

std::vector<tsr_backend_entry> built_in_backends() { return {tsr_cpu_backend_entry, tsr_null_backend_entry}; }

}  // namespace tessera
