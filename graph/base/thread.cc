#include "graph/base/thread.h"

#include <memory>
#include <system_error>

namespace tessera {

namespace {

void throw_unless_zero(int error, const char* what) {
  if (error != 0) throw std::system_error(error, std::generic_category(), what);
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
  // The guard is taken from the stack's size.
  throw_unless_zero(pthread_attr_setguardsize(&attributes.value, kThreadGuardBytes),
                    "pthread_attr_setguardsize");
  throw_unless_zero(pthread_attr_setstacksize(&attributes.value, kThreadStackBytes + kThreadGuardBytes),
                    "pthread_attr_setstacksize");
  auto given = std::make_unique<std::function<void()>>(std::move(body));
  const auto run = [](void* opaque) -> void* {
    const std::unique_ptr<std::function<void()>> taken(static_cast<std::function<void()>*>(opaque));
    (*taken)();
    return nullptr;
  };
  throw_unless_zero(pthread_create(&thread_, &attributes.value, run, given.get()), "pthread_create");
  (void)given.release();
  joinable_ = true;
}

void Thread::join() noexcept {
  if (!std::exchange(joinable_, false)) return;
  pthread_join(thread_, nullptr);
}

}  // namespace tessera
