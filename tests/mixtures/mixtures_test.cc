// Random mixtures of the words of --parallel, over four families and odd sizes, through the C API: every one
// trains as one device does, a fifth of them are saved and go on under another layout, or it is refused for a
// known reason.
//
//   TESSERA_MIXTURES=5000        how many (default 60; 3000 with TESSERA_TEST_FULL=1)
//   TESSERA_MIXTURES_SEED=2      another draw
//   TESSERA_MIXTURES_ONLY=17     this one alone, as drawn with the others; TESSERA_MIXTURES_VERBOSE=1 prints
//   each TESSERA_MIXTURES_PARTS=2 TESSERA_MIXTURES_PART=0      every second one, so that processes can share
//   them
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <map>

#include "tests/full.h"
#include "tests/mixtures/refusals.h"
#include "tests/mixtures/run.h"

using namespace capi_test;
using namespace mixtures;

namespace {

int64_t variable(const char* name, int64_t otherwise) {
  const char* value = std::getenv(name);
  return value == nullptr || *value == 0 ? otherwise : std::strtoll(value, nullptr, 10);
}

// A few jobs are alive at a time; a mixture takes one that it suits, so that one device's run serves several.
class Jobs {
 public:
  size_t for_mixture(const Mixture& mixture, Dice& dice) {
    constexpr size_t kAlive = 12;
    if (!dice.one_in(5))
      for (size_t tries = 0; tries < 2 * jobs_.size(); ++tries) {
        const size_t at = dice.below(static_cast<uint32_t>(jobs_.size()));
        if (suits(jobs_[at], mixture)) return at;
      }
    if (jobs_.size() < kAlive) {
      jobs_.push_back(draw_job(mixture, dice));
      return jobs_.size() - 1;
    }
    const size_t at = dice.below(kAlive);
    jobs_[at] = draw_job(mixture, dice);
    return at;
  }
  Job& operator[](size_t at) { return jobs_[at]; }

 private:
  std::vector<Job> jobs_;
};

struct Table {
  int run = 0, equal = 0, wrong = 0, refused = 0, resumed = 0, on_other_data = 0, unknown = 0;
  double deviation = 0;
  std::map<std::string, int> reasons;
};

void print(const Table& table, const Drawing& drawing, double seconds) {
  const auto pairs = drawing.pairs(), triples = drawing.triples();
  std::printf(
      "mixtures | %d drawn | %d run, %d equal, %d wrong | %d resumed elsewhere | %d refused | %.0f s\n",
      table.run + table.refused, table.run, table.equal, table.wrong, table.resumed, table.refused, seconds);
  std::printf("mixtures | pairs of words: %d possible, %d drawn, %d run | triples: %d, %d, %d\n",
              pairs.possible, pairs.drawn, pairs.ran, triples.possible, triples.drawn, triples.ran);
  std::printf("mixtures | largest deviation %.3f of what is allowed | %d equal on other data alone\n",
              table.deviation, table.on_other_data);
  for (const auto& [reason, count] : table.reasons)
    std::printf("mixtures | refused %5d | %s\n", count, reason.c_str());
}

}  // namespace

TEST_CASE("random mixtures of the whole grammar train as one device does") {
  const int64_t count = variable("TESSERA_MIXTURES", tessera::test::full() ? 3000 : 60),
                only = variable("TESSERA_MIXTURES_ONLY", -1);
  const auto seed = static_cast<uint32_t>(variable("TESSERA_MIXTURES_SEED", 1));
  const int64_t parts = variable("TESSERA_MIXTURES_PARTS", 1), part = variable("TESSERA_MIXTURES_PART", 0);
  const bool verbose = variable("TESSERA_MIXTURES_VERBOSE", 0) != 0 || only >= 0;
  const Runtime rt = runtime();
  Drawing drawing(seed), elsewhere(seed + 2000);
  Dice dice(seed + 1000);
  Jobs jobs;
  Table table;
  const auto begin = std::chrono::steady_clock::now();
  const auto seconds = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  for (int64_t i = 0; i < count; ++i) {
    const Mixture mixture = drawing.next();
    Job& job = jobs[jobs.for_mixture(mixture, dice)];
    Attempt attempt;
    attempt.layout = layout_for(mixture, job, dice);
    attempt.limited = dice.one_in(80);
    attempt.fused_loss = dice.one_in(4) && job.description.starts_with("encoder") == false ? "on" : "off";
    if (i % 5 == 0) {
      for (int other = 0; other < 8; ++other) {
        const Mixture mixture_there = elsewhere.next();
        if (suits(job, mixture_there)) attempt.others.push_back(layout_for(mixture_there, job, dice));
      }
      attempt.others.push_back({"", 1});
    }
    drawing.count(mixture, false);
    if ((only >= 0 && i != only) || i % parts != part) continue;
    const std::clock_t begun = std::clock();
    Verdict verdict = run(rt.get(), job, attempt);
    // A number that lies next to another of equal rank, or next to a tie, is one of this data alone.
    const bool by_chance = job.routes || job.rounding != Rounding::kF32;
    if (verdict.kind == Verdict::kWrong && by_chance && verdict.what.find("failed") == std::string::npos) {
      Job other = other_data(job);
      const Verdict again = run(rt.get(), other, attempt);
      if (again.kind == Verdict::kEqual) {
        std::printf("mixtures | %lld | equal on other data | %s | %s\n", static_cast<long long>(i),
                    attempt.layout.words.c_str(), verdict.what.c_str());
        verdict = again;
        ++table.on_other_data;
      }
    }
    const std::string line = std::to_string(i) + " | " + attempt.layout.words + " | " +
                             std::to_string(attempt.layout.devices) + " devices" +
                             (attempt.limited ? ", limited" : "") + ", fused loss " + attempt.fused_loss +
                             (verdict.resumed.empty() ? "" : " -> " + verdict.resumed) + " | " + job.text();
    if (verbose)
      std::printf("mixtures | %s | %.3f | %.0f ms | %s\n", line.c_str(), verdict.deviation,
                  1000 * static_cast<double>(std::clock() - begun) / CLOCKS_PER_SEC, verdict.what.c_str());
    if (verdict.kind == Verdict::kRefused) {
      ++table.refused;
      const std::string reason = reason_of(verdict.what, attempt.limited);
      ++table.reasons[reason.empty() ? "UNKNOWN" : reason];
      CHECK_MESSAGE(!reason.empty(), line, "\n  refused for no known reason: ", verdict.what);
      continue;
    }
    drawing.count(mixture, true);
    ++table.run;
    table.resumed += !verdict.resumed.empty();
    if (verdict.kind == Verdict::kEqual) {
      ++table.equal;
      table.deviation = std::max(table.deviation, verdict.deviation);
    } else {
      ++table.wrong;
      CHECK_MESSAGE(false, line, "\n  ", verdict.what);
    }
    if ((i + 1) % 500 == 0) print(table, drawing, seconds());
    if (verbose) std::fflush(stdout);
  }
  print(table, drawing, seconds());
}
