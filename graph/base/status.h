// Status: the outcome of something that may fail. Success is one null pointer.
//
// Things that may happen (bad input, a full disk) return Status or Result<T>; things that cannot happen use
// TSR_CHECK, which throws InternalError. Throws are caught at every thread entry, plugin function and C function
// (see catch_status), so the host process is never aborted.
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tessera {

// Values are part of the C ABI (tsr_code): append, never renumber.
enum class StatusCode : int32_t {
  kOk = 0,
  kInvalidArgument = 1,     // the caller's value is wrong; the message says what was found and wanted
  kNotFound = 2,            // a file, tensor, op, option or device does not exist
  kCorrupt = 3,             // a file or message does not hold what its format promises
  kUnsupported = 4,         // valid, but not something this build or backend does
  kOutOfMemory = 5,         // an allocation failed or a memory limit cannot be met
  kIo = 6,                  // the operating system refused a read or write
  kCancelled = 7,           // the caller asked for it
  kAborted = 8,             // another rank failed first; its error is the one to read
  kFailedPrecondition = 9,  // the object is in the wrong state for this call
  kTimeout = 10,
  kInternal = 11,           // a bug in Tessera or in a plugin
};

std::string_view status_code_name(StatusCode code);

class [[nodiscard]] Status {
 public:
  Status() = default;  // success
  Status(StatusCode code, std::string message);

  // A status that needs no memory to make; for out-of-memory paths.
  static Status out_of_memory() noexcept;

  bool ok() const { return rep_ == nullptr; }
  StatusCode code() const;
  std::string_view message() const;   // empty for success
  std::string to_string() const;      // "invalid_argument: message", "ok"

  // The same error, its message prefixed by `context` and ": "; success stays success.
  Status with_context(std::string_view context) const;

  // The same error with a number of its message, for programs:
  // "needed_bytes". Keys are part of the C ABI (tsr_status_number).
  Status with_number(std::string_view key, int64_t value) const;  // replaces an earlier one of this key
  std::optional<int64_t> number(std::string_view key) const;
  const std::string* number_key(size_t at) const;  // key of number `at`, from 0 on; null beyond the last
  // The same error with the numbers of `other` that it lacks.
  Status with_numbers_of(const Status& other) const;

 private:
  struct Rep {
    StatusCode code;
    std::string message;
    std::vector<std::pair<std::string, int64_t>> numbers;
  };
  explicit Status(std::shared_ptr<const Rep> rep) : rep_(std::move(rep)) {}
  std::shared_ptr<const Rep> rep_;  // shared: a status is copied to every waiter of a failed run
};

// InternalError: thrown by TSR_CHECK.
class InternalError : public std::exception {
 public:
  InternalError(const char* file, int line, std::string_view what);
  const char* what() const noexcept override { return what_.c_str(); }

 private:
  std::string what_;
};

// Turns the current exception into a Status.
Status status_from_current_exception() noexcept;
template <class Body>
Status catch_status(Body&& body) noexcept {
  try {
    return body();
  } catch (...) {
    return status_from_current_exception();
  }
}

}  // namespace tessera

#define TSR_CHECK(condition, ...)                                                              \
  do {                                                                                         \
    if (!(condition)) throw ::tessera::InternalError(__FILE__, __LINE__, #condition " " __VA_ARGS__); \
  } while (false)

#define TSR_RETURN_IF_ERROR(expression)                              \
  do {                                                               \
    if (::tessera::Status tsr_status_ = (expression); !tsr_status_.ok()) return tsr_status_; \
  } while (false)
