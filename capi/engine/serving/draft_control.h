// When guessed tokens are computed along with those that are certain, and how many: as long as they come true often enough
// for the time that they take. Which tokens come out does not depend on it. One thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace tessera {

// How often the guesses for one text came true.
class DraftRecord {
 public:
  // Guesses wanted for the next step, at most so many; 0 for a while after they failed.
  size_t wanted(size_t most);
  // So many tokens were guessed, and the first `right` of them came true.
  void note(size_t guessed, size_t right);
  // Tokens that so many guesses bring, on average.
  double expected(size_t guessed) const;

 private:
  double rate_ = 0.7;  // of guesses that were right, lately
  int64_t pause_ = 0, next_pause_ = kShortestPause;
  static constexpr int64_t kShortestPause = 4, kLongestPause = 512;
};

// How long the steps of a server take, by entry point.
class StepTimes {
 public:
  void note(const std::string& entry, double seconds);
  // Nothing while it ran at most once: the first time is a slow one.
  std::optional<double> find(const std::string& entry) const;
  // Whether a step of `certain` tokens by one entry is slower, a token, than one with `guessed` more on average by the
  // other. True while a time is not known, and now and then to see whether it still holds.
  bool pays(const std::string& plain, double certain, const std::string& with_guesses, double guessed);

 private:
  struct Time {
    double seconds = 0;  // lately
    int64_t runs = 0;
  };
  std::map<std::string, Time> times_;  // by entry
  int64_t refused_ = 0;
};

}  // namespace tessera
