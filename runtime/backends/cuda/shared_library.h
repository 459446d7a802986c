// Libraries opened at run time, so that the plugin loads, and names what is missing, where they are absent.
#pragma once

#include <dlfcn.h>

#include <string>

#include "graph/base/result.h"
#include "graph/base/text.h"

namespace tessera::cuda {

// Opens the first possible one of `names`, a list that ends with null; else returns the loader's reasons.
// Never closed: such libraries leave threads and driver state behind.
inline Result<void*> open_library(const char* const* names) {
  std::string reasons;
  for (; *names != nullptr; ++names) {
    if (void* library = dlopen(*names, RTLD_NOW | RTLD_LOCAL); library != nullptr) return library;
    if (const char* reason = dlerror(); reason != nullptr)
      reasons += (reasons.empty() ? "" : "; ") + std::string(reason);
  }
  return Status(StatusCode::kUnsupported, reasons);
}

template <class F>
Status bind(void* library, const char* name, F& function) {
  function = reinterpret_cast<F>(dlsym(library, name));
  if (function != nullptr) return {};
  return Status(StatusCode::kUnsupported, format("{} is not in the library", name));
}

}  // namespace tessera::cuda
