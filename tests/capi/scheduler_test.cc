// The scheduler and its pages without a model: a position's keys and values are a hash of all tokens up to it, so that a
// page that is shared, copied or written wrongly shows at once.
#include "engine/serving/scheduler/scheduler.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "graph/base/hash.h"
#include "tests/full.h"

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
  HashServer(int64_t pages, int64_t page_size, int64_t rows, WindowExtent windows = {})
      : windows_(windows),
        pool_(pages, page_size, windows),
        scheduler_(pool_, rows, true),
        slots_(static_cast<size_t>(pages * page_size)),
        window_slots_(static_cast<size_t>(windows.pages * page_size)) {}

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
    for (const PageCopy& copy : scheduler_.copies())
      for (int64_t i = 0; i < copy.count && windows_.pages > 0; ++i)
        window_slots_[slot(copy.window_to, i)] = window_slots_[slot(copy.window_from, i)];
    for (const StepPart& part : parts)
      for (int64_t i = part.first; i < part.first + part.count; ++i) write(*part.sequence, i), ++computed;
    int64_t wrong = 0;
    for (const StepPart& part : parts)
      for (int64_t i = 0; i < part.first + part.count; ++i)
        wrong += at(*part.sequence, i) != hash(*part.sequence, i);
    CHECK(wrong == 0);
    CHECK(wrong_in_windows(parts) == 0);
    check_window_users();
    scheduler_.computed(parts);
    check_window_users();
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
  int32_t window_page(const Sequence& sequence, int64_t i) const {
    return pool_.windows().page_of(sequence.pages[static_cast<size_t>(i / pool_.page_size())]);
  }
  void write(const Sequence& sequence, int64_t i) {
    at(sequence, i) = hash(sequence, i);
    if (windows_.pages == 0) return;
    REQUIRE(i / pool_.page_size() >= sequence.first_window);
    window_slots_[slot(window_page(sequence, i), i % pool_.page_size())] = hash(sequence, i);
  }
  // Positions that a token of the step sees in its window, and that hold something else.
  int64_t wrong_in_windows(const std::vector<StepPart>& parts) const {
    int64_t wrong = 0;
    for (const StepPart& part : parts) {
      const Sequence& it = *part.sequence;
      for (int64_t i = std::max<int64_t>(0, part.first - windows_.window + 1);
           windows_.pages > 0 && i < part.first + part.count; ++i)
        wrong += i / pool_.page_size() < it.first_window ||
                 window_slots_[slot(window_page(it, i), i % pool_.page_size())] != hash(it, i);
    }
    return wrong;
  }
  // Users by count: every window page is free or has exactly the sequences that hold it; none holds what it left behind.
  void check_window_users() const {
    if (windows_.pages == 0) return;
    std::set<int32_t> held;
    std::map<int32_t, int32_t> owners;
    for (const auto& [number, text] : texts_) {
      const Sequence& it = text->sequence;
      for (auto i = static_cast<size_t>(it.first_window); i < it.pages.size(); ++i) {
        const int32_t page = pool_.windows().page_of(it.pages[i]);
        REQUIRE(page >= 0);
        held.insert(page);
        CHECK(owners.try_emplace(page, it.pages[i]).first->second == it.pages[i]);
      }
    }
    CHECK(pool_.windows().available() + std::ssize(held) == windows_.pages);
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

  const WindowExtent windows_;
  PagePool pool_;
  Scheduler scheduler_;
  std::vector<uint64_t> slots_, window_slots_;
  std::map<int64_t, std::unique_ptr<Text>> texts_;
  int64_t next_ = 0;
};

}  // namespace

TEST_CASE(
    "scheduler: random texts of two tokens find in their pages what belongs there, and all of them end") {
  const uint32_t mixes = test::full() ? 3000 : 100;
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

TEST_CASE(
    "scheduler: with windows smaller than texts, each token sees its window, and pages left behind come "
    "back") {
  const uint32_t mixes = test::full() ? 3000 : 100;
  int64_t copied = 0, preemptions = 0, computed = 0, computed_without = 0;
  for (uint32_t mix = 0; mix < mixes; ++mix) {
    CAPTURE(mix);
    uint32_t seed = mix;
    const int64_t size = 1 + draw(seed) % 9, pages = 60 / size + 1 + draw(seed) % 30;
    const int64_t rows = 1 + draw(seed) % 6, budget = 1 + draw(seed) % 40, window = 1 + draw(seed) % 30;
    // The pages of least_window_pages, or some more.
    const int64_t least = (std::max<int64_t>(window, 2) + budget - 2 + size - 1) / size + 2;
    const int64_t more = mix % 3 == 0 ? pages : draw(seed) % 8;
    const WindowExtent windows{std::min(pages, least + more), window};
    HashServer server(pages, size, rows, windows), without(pages, size, rows);
    const std::vector<int32_t> common = few_tokens(seed, 40);
    for (int64_t i = 0; i < 40; ++i) {
      std::vector<int32_t> tokens(common.begin(), common.begin() + draw(seed) % 41);
      for (const int32_t token : few_tokens(seed, 1 + draw(seed) % 8)) tokens.push_back(token);
      const int64_t most = std::min<int64_t>(60, std::ssize(tokens) + 1 + draw(seed) % 20);
      const uint64_t root = draw(seed) % 8 == 0;
      const auto priority = static_cast<int32_t>(draw(seed) % 2);
      const int64_t cancelled = draw(seed) % 6 == 0 ? static_cast<int64_t>(draw(seed) % (i + 1)) : -1;
      const uint32_t steps = draw(seed) % 6;
      for (HashServer* const it : {&server, &without}) {
        it->add(tokens, most, root, priority);
        if (cancelled >= 0) it->cancel(cancelled);
        for (uint32_t step = 0; step < steps; ++step) it->step(budget);
      }
    }
    for (HashServer* const it : {&server, &without}) {
      int steps = 0;
      while (it->step(budget)) REQUIRE(++steps < 5000);
      CHECK(it->pool().available() == pages);
    }
    CHECK(server.pool().windows().available() == windows.pages);
    copied += server.copied;
    preemptions += server.scheduler().preemptions();
    computed += server.computed;
    computed_without += without.computed;
  }
  CHECK(copied > 0);
  CHECK(preemptions > 0);
  CHECK(computed > computed_without);      // some windows were gone
  CHECK(computed < 2 * computed_without);  // most were there
}

TEST_CASE(
    "scheduler: a text begins with what window pages hold, and what branches once is kept for the next") {
  // Pages of 4, a window of 8: its own 3 pages, and with 24 tokens a step at most 9.
  HashServer server(200, 4, 1, {12, 8});
  const std::vector<int32_t> common(80, 1);
  const auto computed = [&](std::vector<int32_t> more) {
    const int64_t before = server.computed;
    std::vector<int32_t> tokens = common;
    tokens.insert(tokens.end(), more.begin(), more.end());
    const int64_t most = std::ssize(tokens) + 2;
    server.add(std::move(tokens), most, 0, 0);
    while (server.step(24)) {
    }
    return server.computed - before;
  };
  const std::vector<int32_t> other(60, 0);
  CHECK(computed(other) == 80 + 60 + 1);
  CHECK(computed({0, 1}) == 80 + 2 + 1);  // full pages are known, windows at their end are not
  CHECK(computed({0, 1}) <= 3);           // the branch was kept
  CHECK(computed(std::vector<int32_t>(40, 0)) <= 60 + 1);
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
