// Every operator new of this test program is counted.
#pragma once

#include <cstdint>

namespace tessera::test {
int64_t allocation_count();  // so far, by all threads
}
