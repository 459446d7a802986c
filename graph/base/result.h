// Result<T>: a value or the Status that explains its absence.
#pragma once

#include <optional>
#include <utility>

#include "graph/base/status.h"

namespace tessera {

template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}               // NOLINT: implicit on purpose
  Result(Status status) : status_(std::move(status)) {         // NOLINT: implicit on purpose
    TSR_CHECK(!status_.ok(), "a Result made from a Status needs an error");
  }

  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }

  T& value() & { TSR_CHECK(ok(), "value() of a failed Result"); return *value_; }
  const T& value() const& { TSR_CHECK(ok(), "value() of a failed Result"); return *value_; }
  T&& value() && { TSR_CHECK(ok(), "value() of a failed Result"); return std::move(*value_); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

 private:
  std::optional<T> value_;
  Status status_;
};

}  // namespace tessera

#define TSR_CONCAT_INNER_(a, b) a##b
#define TSR_CONCAT_(a, b) TSR_CONCAT_INNER_(a, b)

// TSR_ASSIGN_OR_RETURN(auto x, f()): declares x from the value, or returns the error.
#define TSR_ASSIGN_OR_RETURN(target, expression) \
  TSR_ASSIGN_OR_RETURN_IMPL_(TSR_CONCAT_(tsr_result_, __LINE__), target, expression)
#define TSR_ASSIGN_OR_RETURN_IMPL_(result, target, expression) \
  auto result = (expression);                                  \
  if (!result.ok()) return result.status();                    \
  target = std::move(result).value()
