#include "graph/base/thread.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstdint>
#include <memory>
#include <new>
#include <system_error>

#include "graph/base/thread_stack.h"

namespace tessera {

namespace {

// Address at which this thread's stack begins; 0 on threads that the library did not start.
thread_local uintptr_t stack_top = 0;

uintptr_t frame_address() { return reinterpret_cast<uintptr_t>(__builtin_frame_address(0)); }

void throw_unless_zero(int error, const char* what) {
  if (error != 0) throw std::system_error(error, std::generic_category(), what);
}

bool has_room_for_stack() {
  constexpr size_t kBytes = kThreadStackBytes + kThreadGuardBytes;
  void* const room = mmap(nullptr, kBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return room != MAP_FAILED && munmap(room, kBytes) == 0;
}

struct Attributes {
  pthread_attr_t value;
  Attributes() { throw_unless_zero(pthread_attr_init(&value), "pthread_attr_init"); }
  ~Attributes() { pthread_attr_destroy(&value); }
  Attributes(const Attributes&) = delete;
  Attributes& operator=(const Attributes&) = delete;
};

}  // namespace

Thread::Thread(std::function<void()> body) {
  Attributes attributes;
  // The guard is part of the stack's size.
  throw_unless_zero(pthread_attr_setguardsize(&attributes.value, kThreadGuardBytes),
                    "pthread_attr_setguardsize");
  throw_unless_zero(pthread_attr_setstacksize(&attributes.value, kThreadStackBytes + kThreadGuardBytes),
                    "pthread_attr_setstacksize");
  auto given = std::make_unique<std::function<void()>>(std::move(body));
  const auto run = [](void* opaque) -> void* {
    stack_top = frame_address();
    const std::unique_ptr<std::function<void()>> taken(static_cast<std::function<void()>*>(opaque));
    (*taken)();
    return nullptr;
  };
  const int error = pthread_create(&thread_, &attributes.value, run, given.get());
  // EAGAIN means either too many threads, or no room for a stack.
  if (error == EAGAIN && !has_room_for_stack()) throw std::bad_alloc();
  throw_unless_zero(error, "pthread_create");
  (void)given.release();
  joinable_ = true;
}

std::optional<size_t> used_stack_bytes() {
  return stack_top == 0 ? std::nullopt : std::optional<size_t>(stack_top - frame_address());
}

void Thread::join() noexcept {
  if (!std::exchange(joinable_, false)) return;
  pthread_join(thread_, nullptr);
}

}  // namespace tessera
