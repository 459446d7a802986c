// The scheduler and its pages without a model: a position's keys and values are a hash of all tokens up to it, so that a
// page that is shared, copied or written wrongly shows at once.
#include "capi/engine/serving/scheduler.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "graph/base/hash.h"

namespace tessera::serving_tests {

namespace {

uint32_t draw(uint32_t& seed) { return (seed = seed * 1664525u + 1013904223u) >> 8; }

std::vector<int32_t> few_tokens(uint32_t& seed, size_t count) {
  std::vector<int32_t> tokens(count);
  for (int32_t& token : tokens) token = static_cast<int32_t>(draw(seed) % 2);
  return tokens;
}

// Runs a scheduler's plans over pages of hashes.
class HashServer {
 public:
  HashServer(int64_t pages, int64_t page_size, int64_t rows)
      : pool_(pages, page_size),
        scheduler_(pool_, rows, true),
        slots_(static_cast<size_t>(pages * page_size)) {}

  void add(std::vector<int32_t> tokens, int64_t most, uint64_t root, int32_t priority) {
    auto text = std::make_unique<Text>();
    text->most = most;
    text->sequence.number = next_++;
    text->sequence.priority = priority;
    text->sequence.root = root;
    text->sequence.tokens = std::move(tokens);
    scheduler_.add(text->sequence);
    texts_.emplace(text->sequence.number, std::move(text));
  }

  void cancel(int64_t number) {
    const auto at = texts_.find(number);
    if (at == texts_.end()) return;
    scheduler_.remove(at->second->sequence);
    texts_.erase(at);
  }

  // False where there is nothing to do.
  bool step(int64_t budget) {
    const std::vector<StepPart> parts = scheduler_.plan(budget, budget);
    CHECK(parts.empty() == texts_.empty());  // no deadlock
    for (const PageCopy& copy : scheduler_.copies())
      for (int64_t i = 0; i < copy.count; ++i)
        slots_[slot(copy.to, i)] = slots_[slot(copy.from, i)], ++copied;
    for (const StepPart& part : parts)
      for (int64_t i = part.first; i < part.first + part.count; ++i)
        at(*part.sequence, i) = hash(*part.sequence, i), ++computed;
    int64_t wrong = 0;
    for (const StepPart& part : parts)
      for (int64_t i = 0; i < part.first + part.count; ++i)
        wrong += at(*part.sequence, i) != hash(*part.sequence, i);
    CHECK(wrong == 0);
    scheduler_.computed(parts);
    for (const StepPart& part : parts) {
      Sequence& sequence = *part.sequence;
      if (sequence.computed < sequence.size()) continue;
      sequence.tokens.push_back(static_cast<int32_t>(hash(sequence, sequence.size() - 1) % 2));
      if (sequence.size() >= texts_.at(sequence.number)->most) cancel(sequence.number);
    }
    return !parts.empty();
  }

  const PagePool& pool() const { return pool_; }
  const Scheduler& scheduler() const { return scheduler_; }
  int64_t copied = 0, computed = 0;

 private:
  struct Text {
    Sequence sequence;
    int64_t most = 0;
  };

  size_t slot(int32_t page, int64_t place) const {
    return static_cast<size_t>(page * pool_.page_size() + place);
  }
  uint64_t& at(const Sequence& sequence, int64_t i) {
    return slots_[slot(sequence.pages[static_cast<size_t>(i / pool_.page_size())], i % pool_.page_size())];
  }
  static uint64_t hash(const Sequence& sequence, int64_t i) {
    Hash hash;
    hash.add(sequence.root);
    for (int64_t j = 0; j <= i; ++j) hash.add(sequence.tokens[static_cast<size_t>(j)]);
    return hash.value();
  }

  PagePool pool_;
  Scheduler scheduler_;
  std::vector<uint64_t> slots_;
  std::map<int64_t, std::unique_ptr<Text>> texts_;
  int64_t next_ = 0;
};

}  // namespace

TEST_CASE(
    "scheduler: random texts of two tokens find in their pages what belongs there, and all of them end") {
  const char* const full = std::getenv("TESSERA_TEST_FULL");
  const uint32_t mixes = full != nullptr && full[0] == '1' ? 3000 : 100;
  int64_t copied = 0, preemptions = 0;
  for (uint32_t mix = 0; mix < mixes; ++mix) {
    CAPTURE(mix);
    uint32_t seed = mix;
    const int64_t size = 1 + draw(seed) % 9, pages = 60 / size + 1 + draw(seed) % 30;
    HashServer server(pages, size, 1 + draw(seed) % 6);
    const int64_t budget = 1 + draw(seed) % 40;
    const std::vector<int32_t> common = few_tokens(seed, 40);
    for (int64_t i = 0; i < 40; ++i) {
      std::vector<int32_t> tokens(common.begin(), common.begin() + draw(seed) % 41);
      for (const int32_t token : few_tokens(seed, 1 + draw(seed) % 8)) tokens.push_back(token);
      const int64_t most = std::min<int64_t>(60, std::ssize(tokens) + 1 + draw(seed) % 20);
      server.add(std::move(tokens), most, draw(seed) % 8 == 0, static_cast<int32_t>(draw(seed) % 2));
      if (draw(seed) % 6 == 0) server.cancel(static_cast<int64_t>(draw(seed) % (i + 1)));
      for (uint32_t steps = draw(seed) % 6; steps > 0; --steps) server.step(budget);
    }
    int steps = 0;
    while (server.step(budget)) REQUIRE(++steps < 5000);
    CHECK(server.pool().available() == pages);
    copied += server.copied;
    preemptions += server.scheduler().preemptions();
  }
  CHECK(copied > 0);
  CHECK(preemptions > 0);
}

TEST_CASE("scheduler: waiting for another's tokens leaves the rows that those who wait will take") {
  HashServer server(100, 8, 3);
  const std::vector<int32_t> common(64, 1);
  for (int i = 0; i < 3; ++i) {
    std::vector<int32_t> tokens = common;
    tokens.push_back(i);
    server.add(std::move(tokens), 100, 0, 0);
  }
  for (int i = 0; i < 2; ++i) server.add({0, 0, 0}, 100, 0, 0);
  server.step(48);  // 48 tokens of the first one
  CHECK(server.scheduler().running() == 1);
  server.step(48);  // its last 17; the second and the third have the two other rows
  CHECK(server.scheduler().running() == 1);
  server.step(48);
  CHECK(server.scheduler().running() == 3);
  CHECK(server.scheduler().waiting() == 2);
  CHECK(server.computed == 65 + 1 + 2);
}

TEST_CASE("page index: the longest common beginning is that of comparing with every page") {
  uint32_t seed = 1;
  for (int mix = 0; mix < 20; ++mix) {
    constexpr int32_t kPages = 200;
    PageIndex index(kPages);
    std::map<int32_t, std::pair<uint64_t, std::vector<int32_t>>> known;  // by page
    for (int turn = 0; turn < 600; ++turn) {
      const auto page = static_cast<int32_t>(draw(seed) % kPages);
      const uint64_t root = draw(seed) % 3;
      const std::vector<int32_t> tokens = few_tokens(seed, 1 + draw(seed) % 8);
      const auto is_known = [&] {
        return std::ranges::any_of(known,
                                   [&](const auto& it) { return it.second == std::pair(root, tokens); });
      };
      if (draw(seed) % 3 == 0) {
        index.erase(page);
        known.erase(page);
      } else {
        known.erase(page);
        const bool stays = is_known();
        index.insert(page, PageIndex::root(root), tokens);
        if (!stays) known[page] = {root, tokens};
      }
      CHECK(index.contains(page) == known.contains(page));
      CHECK(index.find(PageIndex::root(root), tokens).has_value() == is_known());
      const std::vector<int32_t> wanted = few_tokens(seed, draw(seed) % 9);
      int64_t longest = 0;
      for (const auto& [other, held] : known)
        if (held.first == root)
          longest = std::max<int64_t>(longest,
                                      std::ranges::mismatch(held.second, wanted).in1 - held.second.begin());
      const auto found = index.find_beginning(PageIndex::root(root), wanted);
      CHECK((found ? found->common : 0) == longest);
      if (!found) continue;
      CHECK(known.at(found->page).first == root);
      CHECK(found->known == std::ssize(known.at(found->page).second));
    }
  }
}

}  // namespace tessera::serving_tests
