#include "graph/base/status.h"

#include <new>
#include <system_error>

#include "graph/base/cancellation.h"
#include "graph/base/quote.h"
#include "graph/base/status_codes.h"

namespace tessera {

std::string_view status_code_name(StatusCode code) {
  switch (code) {
    case StatusCode::kOk: return "ok";
    case StatusCode::kInvalidArgument: return "invalid_argument";
    case StatusCode::kNotFound: return "not_found";
    case StatusCode::kCorrupt: return "corrupt";
    case StatusCode::kUnsupported: return "unsupported";
    case StatusCode::kOutOfMemory: return "out_of_memory";
    case StatusCode::kIo: return "io";
    case StatusCode::kCancelled: return "cancelled";
    case StatusCode::kAborted: return "aborted";
    case StatusCode::kFailedPrecondition: return "failed_precondition";
    case StatusCode::kTimeout: return "timeout";
    case StatusCode::kInternal: return "internal";
  }
  for (const auto& [further, name] : kFurtherCodes)
    if (code == further) return name;
  return "unknown";
}

namespace {
// Largest message: twice the longest reasonable one. A name or a text in it may be of any size.
constexpr size_t kMostMessageBytes = 2000;
}  // namespace

Status::Status(StatusCode code, std::string message)
    : rep_(std::make_shared<const Rep>(
          Rep{code,
              message.size() <= kMostMessageBytes ? std::move(message) : quote(message, kMostMessageBytes),
              {}})) {}

Status Status::out_of_memory() noexcept {
  // Made at load time, so that reporting exhaustion allocates nothing.
  static const Status kStatus(StatusCode::kOutOfMemory, "the process is out of memory");
  return kStatus;
}

StatusCode Status::code() const { return rep_ ? rep_->code : StatusCode::kOk; }

std::string_view Status::message() const {
  return rep_ ? std::string_view(rep_->message) : std::string_view();
}

std::string Status::to_string() const {
  if (ok()) return "ok";
  return std::string(status_code_name(code())) + ": " + rep_->message;
}

Status Status::with_context(std::string_view context) const {
  if (ok()) return *this;
  return Status(code(), std::string(context) + ": " + rep_->message).with_numbers_of(*this);
}

Status Status::with_number(std::string_view key, int64_t value) const {
  if (ok()) return *this;
  Rep rep = *rep_;
  std::erase_if(rep.numbers, [&](const auto& number) { return number.first == key; });
  rep.numbers.emplace_back(key, value);
  return Status(std::make_shared<const Rep>(std::move(rep)));
}

std::optional<int64_t> Status::number(std::string_view key) const {
  if (rep_)
    for (const auto& [name, value] : rep_->numbers)
      if (name == key) return value;
  return std::nullopt;
}

const std::string* Status::number_key(size_t at) const {
  return rep_ && at < rep_->numbers.size() ? &rep_->numbers[at].first : nullptr;
}

Status Status::with_numbers_of(const Status& other) const {
  if (ok() || other.ok() || other.rep_->numbers.empty()) return *this;
  Status all = *this;
  for (const auto& [key, value] : other.rep_->numbers)
    if (!number(key)) all = all.with_number(key, value);
  return all;
}

InternalError::InternalError(const char* file, int line, std::string_view what)
    : what_(std::string(file) + ":" + std::to_string(line) + ": check failed: " + std::string(what)) {}

namespace {
[[maybe_unused]] const Status kPrimeOutOfMemory = Status::out_of_memory();
}

Status status_from_current_exception() noexcept {
  try {
    throw;
  } catch (const std::bad_alloc&) {
    return Status::out_of_memory();
  } catch (const std::system_error& e) {
    try {
      // std::thread throws this where the system refuses a thread.
      if (e.code() == std::errc::resource_unavailable_try_again)
        return Status(
            StatusCode::kOutOfMemory,
            "the system lets this process have no more threads: raise the limit (ulimit -u, or that of the "
            "container), or use fewer devices");
      return Status(StatusCode::kInternal, e.what());
    } catch (...) {
      return Status::out_of_memory();
    }
  } catch (const Cancelled& e) {
    try {
      return Status(StatusCode::kCancelled, e.what());
    } catch (...) {
      return Status::out_of_memory();
    }
  } catch (const std::exception& e) {
    try {
      return Status(StatusCode::kInternal, e.what());
    } catch (...) {
      return Status::out_of_memory();
    }
  } catch (...) {
    return Status::out_of_memory();
  }
}

}  // namespace tessera
