// loader_mutants [COUNT = 2000] [FIRST = 0] [LOADER]: reads COUNT broken files, shared out over the loaders, or of one. Every one
// must end as a Status that is no internal error, or be accepted and work; and at least 30 % of each loader's
// mutants must get past its header checks, or they would test nothing else. Build with
// sanitizers (CMakeLists.txt).
//
// A mutant is a function of its number: `loader_mutants 1 NUMBER` runs one again.
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>

#include "tests/fuzz/loaders.h"

// Hostile sizes must not become allocations: with the address sanitizer one above 256 MiB throws bad_alloc.
extern "C" const char* __asan_default_options();
extern "C" const char* __asan_default_options() {
  return "max_allocation_size_mb=256:allocator_may_return_null=1";
}
extern "C" void __sanitizer_set_death_callback(void (*)()) __attribute__((weak));

namespace tessera::fuzz {
namespace {

constexpr unsigned kSecondsPerMutant = 20;
constexpr double kLeastPastHeader = 0.3;

uint64_t current = 0;  // for the last words of a crash
void last_words() {
  char text[64];
  const int size =
      std::snprintf(text, sizeof text, "\nin mutant %llu\n", static_cast<unsigned long long>(current));
  (void)!write(STDERR_FILENO, text, static_cast<size_t>(size));
}
void on_signal(int) {
  last_words();
  _exit(3);
}

struct Row {
  uint64_t mutants = 0, past_header = 0, accepted = 0, bugs = 0;
  std::map<StatusCode, uint64_t> rejected;
  double seconds = 0;
};

// Digits and quoted words differ from mutant to mutant; what is left is the reason.
std::string reason_of(std::string_view message) {
  std::string reason;
  bool quoted = false;
  for (char c : message) {
    if (c == '\'') quoted = !quoted;
    if (quoted && c != '\'') continue;
    const bool digit = c >= '0' && c <= '9';
    if (!digit) {
      reason += c >= ' ' && c <= '~' ? c : '?';
    } else if (!reason.ends_with('#')) {
      reason += '#';
    }
  }
  return reason.substr(0, 90);
}

int run(uint64_t count, uint64_t first, std::string_view only) {
  auto loaders = all_loaders();
  if (!only.empty()) std::erase_if(loaders, [&](const auto& loader) { return loader->name() != only; });
  if (loaders.empty()) {
    std::fprintf(stderr, "loader_mutants: no loader is named '%s'\n", std::string(only).c_str());
    return 2;
  }
  std::vector<Row> rows(loaders.size());
  std::map<std::string, uint64_t> reasons;
  for (uint64_t number = first; number < first + count; ++number) {
    current = number;
    alarm(kSecondsPerMutant);
    const size_t which = number % loaders.size();
    Row& row = rows[which];
    Random random(number);
    Outcome outcome;
    const auto begin = std::chrono::steady_clock::now();
    try {
      outcome = loaders[which]->run(random);
    } catch (const std::exception& error) {
      outcome.status = Status(StatusCode::kInternal, std::string("thrown: ") + error.what());
    }
    row.seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    ++row.mutants;
    row.past_header += outcome.past_header ? 1 : 0;
    if (outcome.status.ok()) {
      ++row.accepted;
      continue;
    }
    const StatusCode code = outcome.status.code();
    ++row.rejected[code];
    ++reasons[std::string(loaders[which]->name()) + ": " + reason_of(outcome.status.message())];
    if (code == StatusCode::kInternal || code == StatusCode::kOutOfMemory ||
        outcome.status.message().empty()) {
      ++row.bugs;
      std::printf("mutant %llu (%s): %s\n", static_cast<unsigned long long>(number),
                  std::string(loaders[which]->name()).c_str(), outcome.status.to_string().c_str());
    }
  }
  alarm(0);

  const StatusCode codes[] = {StatusCode::kCorrupt, StatusCode::kInvalidArgument, StatusCode::kUnsupported,
                              StatusCode::kNotFound};
  std::printf("%-11s %8s %11s %9s %8s %8s %12s %10s %6s %5s %8s\n", "loader", "mutants", "past header",
              "accepted", "corrupt", "invalid", "unsupported", "not found", "other", "bugs", "ms each");
  bool failed = false;
  for (size_t i = 0; i < rows.size(); ++i) {
    Row& row = rows[i];
    if (row.mutants == 0) continue;
    uint64_t other = row.mutants - row.accepted;
    for (StatusCode code : codes) other -= row.rejected[code];
    const double share = static_cast<double>(row.past_header) / static_cast<double>(row.mutants);
    const bool too_few = count >= 100 && share < kLeastPastHeader;
    failed = failed || too_few || row.bugs > 0;
    std::printf("%-11s %8llu %9.1f %% %9llu %8llu %8llu %12llu %10llu %6llu %5llu %8.2f%s\n",
                std::string(loaders[i]->name()).c_str(), static_cast<unsigned long long>(row.mutants),
                100 * share, static_cast<unsigned long long>(row.accepted),
                static_cast<unsigned long long>(row.rejected[codes[0]]),
                static_cast<unsigned long long>(row.rejected[codes[1]]),
                static_cast<unsigned long long>(row.rejected[codes[2]]),
                static_cast<unsigned long long>(row.rejected[codes[3]]),
                static_cast<unsigned long long>(other), static_cast<unsigned long long>(row.bugs),
                1e3 * row.seconds / static_cast<double>(row.mutants),
                too_few ? "  TOO FEW PAST THE HEADER" : "");
  }
  std::vector<std::pair<uint64_t, std::string>> sorted;
  for (const auto& [reason, times] : reasons) sorted.emplace_back(times, reason);
  std::sort(sorted.rbegin(), sorted.rend());
  std::printf("%zu distinct reasons; the most frequent:\n", sorted.size());
  for (size_t i = 0; i < std::min<size_t>(sorted.size(), 16); ++i) {
    std::printf("%7llu  %s\n", static_cast<unsigned long long>(sorted[i].first), sorted[i].second.c_str());
  }
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  std::printf("peak resident %ld MiB; %s\n", usage.ru_maxrss / 1024, failed ? "FAILED" : "passed");
  return failed ? 1 : 0;
}

}  // namespace
}  // namespace tessera::fuzz

int main(int argc, char** argv) {
  using namespace tessera::fuzz;
  if (__sanitizer_set_death_callback != nullptr) __sanitizer_set_death_callback(last_words);
  signal(SIGALRM, on_signal);
  const uint64_t count = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 2000;
  const uint64_t first = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 0;
  if (count == 0) {
    std::fprintf(stderr, "usage: loader_mutants [COUNT] [FIRST] [LOADER]\n");
    return 2;
  }
  return run(count, first, argc > 3 ? argv[3] : "");
}
