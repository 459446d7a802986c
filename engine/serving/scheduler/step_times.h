// StepTimes: how long the steps of a program take lately, by entry point. One thread at a time.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace tessera {

class StepTimes {
 public:
  void note(const std::string& entry, double seconds);
  // Nothing while it ran at most once: the first time is a slow one.
  std::optional<double> find(const std::string& entry) const;

 private:
  struct Time {
    double seconds = 0;  // lately
    int64_t runs = 0;
  };
  std::map<std::string, Time> times_;  // by entry
};

}  // namespace tessera
