// Memory as the emulator allocated it: which device it lies on, and who reaches it.
#pragma once

namespace emulator {

// While it lives, `device` works: a touch of memory that it does not reach ends the process.
class Reach {
 public:
  explicit Reach(int device);
  ~Reach();
  Reach(const Reach&) = delete;
  Reach& operator=(const Reach&) = delete;

 private:
  void protect(int how) const;
  int device_;
};

}  // namespace emulator
