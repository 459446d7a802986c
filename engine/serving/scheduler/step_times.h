// StepTimes: moving average of a program's step times, by entry point. One thread at a time.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace tessera {

class StepTimes {
 public:
  void note(const std::string& entry, double seconds);
  // nullopt until the second run, since the first is slow.
  std::optional<double> find(const std::string& entry) const;

 private:
  struct Time {
    double seconds = 0;  // moving average
    int64_t runs = 0;
  };
  std::map<std::string, Time> times_;  // by entry
};

}  // namespace tessera
