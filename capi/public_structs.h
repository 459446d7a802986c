// Structs of tessera.h and their sizes in version 1 of each. A struct may grow at its end; its first size stays,
// so that programs compiled with an older header go on working.
#pragma once

#include <cstddef>

#include "capi/guard.h"
#include "tessera/tessera.h"

namespace tessera::capi {

// LAST: the last member of version 1.
#define TSR_PUBLIC_STRUCT(T, LAST)                                            \
  template <>                                                                 \
  struct PublicStruct<T> {                                                    \
    static constexpr const char* kName = #T;                                  \
    static constexpr size_t kFirstSize = offsetof(T, LAST) + sizeof(T::LAST); \
  };                                                                          \
  static_assert(offsetof(T, struct_size) == 0 && sizeof(T) >= PublicStruct<T>::kFirstSize)

TSR_PUBLIC_STRUCT(tsr_hooks, release);
TSR_PUBLIC_STRUCT(tsr_reader, release);
TSR_PUBLIC_STRUCT(tsr_entry, plan);
TSR_PUBLIC_STRUCT(tsr_progress, label);
TSR_PUBLIC_STRUCT(tsr_step, seconds);
TSR_PUBLIC_STRUCT(tsr_batch, advantages);
TSR_PUBLIC_STRUCT(tsr_run_event, details_size);
TSR_PUBLIC_STRUCT(tsr_piece, text_size);
TSR_PUBLIC_STRUCT(tsr_event, details_size);

#undef TSR_PUBLIC_STRUCT

// Pinned: where one of these fails, a member was put in front of another or changed its type.
static_assert(sizeof(void*) != 8 || PublicStruct<tsr_hooks>::kFirstSize == 48);
static_assert(sizeof(void*) != 8 || PublicStruct<tsr_reader>::kFirstSize == 40);
static_assert(sizeof(void*) != 8 || PublicStruct<tsr_entry>::kFirstSize == 32);
static_assert(sizeof(void*) != 8 || PublicStruct<tsr_progress>::kFirstSize == 48);
static_assert(sizeof(void*) != 8 || PublicStruct<tsr_step>::kFirstSize == 48);
static_assert(sizeof(void*) != 8 || PublicStruct<tsr_batch>::kFirstSize == 80);
static_assert(sizeof(void*) != 8 || PublicStruct<tsr_run_event>::kFirstSize == 48);
static_assert(sizeof(void*) != 8 || PublicStruct<tsr_piece>::kFirstSize == 40);
static_assert(sizeof(void*) != 8 || PublicStruct<tsr_event>::kFirstSize == 64);

}  // namespace tessera::capi
