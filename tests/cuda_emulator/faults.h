// Launches with a fault that the emulator has to find, and their like without it.
#pragma once

#include <span>

namespace faults {

struct Fault {
  const char* name;
  void (*launch)(bool planted);
  const char* said;  // of the planted one
};
std::span<const Fault> all();

// Launch a kernel each, on 128 bytes.
void launch_something(void* stream);
void launch_something_else(void* stream, void* memory);

}  // namespace faults
