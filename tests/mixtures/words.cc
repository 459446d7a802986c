#include "tests/mixtures/words.h"

#include <algorithm>

namespace mixtures {

namespace {

constexpr int64_t kMostDevices = 8;

// Mixtures that were wrong once; every sample begins with them.
const Mixture kOnceWrong[] = {{kRing, kZero1},   {kRing, kZero2},      {kRing, kZero3},
                              {kTp, kSp, kRing}, {kTp, kRing, kZero3}, {kRing, kZero3, kChunks}};

// Words of one range exclude each other.
constexpr std::pair<Word, Word> kAlternatives[] = {{kTp, kTp3d},
                                                   {kRing, kUlysses},
                                                   {kPp, kZbV},
                                                   {kZero1, kZero3},
                                                   {kRecomputeFull, kRecomputeAuto},
                                                   {kParamsHost, kParamsFile},
                                                   {kGradsHost, kGradsFile},
                                                   {kOptimizerHost, kOptimizerFile},
                                                   {kActivationsHost, kActivationsFile}};

bool within(Word word, Word first, Word last) { return word >= first && word <= last; }

bool excludes(Word a, Word b) {
  if (a == b) return true;
  for (const auto& [first, last] : kAlternatives)
    if (within(a, first, last) && within(b, first, last)) return true;
  const auto either = [&](Word word, Word first, Word last) {
    return (a == word && within(b, first, last)) || (b == word && within(a, first, last));
  };
  // Refusals of the strategy parser's own check().
  return either(kOffloadAuto, kParamsHost, kActivationsFile) || either(kSp, kTp2d, kTp3d) ||
         either(kOwt, kTp2d, kTp3d) || either(kOwt, kEp, kEp);
}

bool fits(const Mixture& mixture, Word word) {
  return std::ranges::none_of(mixture, [&](Word other) { return excludes(other, word); });
}

void add(Mixture& mixture, Word word) {
  if (contains(mixture, word)) return;
  mixture.push_back(word);
  std::ranges::sort(mixture);
}

// Adds what the words mean nothing without; false where that does not go with the rest.
bool complete(Mixture& mixture, Dice& dice) {
  const auto want = [&](Word word) {
    if (!contains(mixture, word) && !fits(mixture, word)) return false;
    add(mixture, word);
    return true;
  };
  if (contains(mixture, kSp) && !want(kTp)) return false;
  if (contains(mixture, kOwt) && !want(kDp)) return false;
  if (contains(mixture, kZeroGroup)) {
    if (!want(kDp)) return false;
    if (!contains_any(mixture, kZero1, kZero3)) want(static_cast<Word>(kZero1 + dice.below(3)));
  }
  return true;
}

bool possible(Mixture words) {
  for (size_t i = 0; i < words.size(); ++i)
    for (size_t j = 0; j < i; ++j)
      if (excludes(words[i], words[j])) return false;
  Dice dice(1);
  std::ranges::sort(words);
  return complete(words, dice) && least_devices(words) <= kMostDevices;
}

}  // namespace

bool contains(const Mixture& mixture, Word word) { return std::ranges::find(mixture, word) != mixture.end(); }

bool contains_any(const Mixture& mixture, Word first, Word last) {
  return std::ranges::any_of(mixture, [&](Word word) { return within(word, first, last); });
}

int64_t least_devices(const Mixture& mixture) {
  int64_t devices = 1;
  for (const Word word : mixture) {
    const bool parts = word == kDp || word == kEp || within(word, kTp, kTp25d) ||
                       within(word, kRing, kUlysses) || within(word, kPp, kZbV);
    if (parts) devices *= 2;
    if (word == kTp3d) devices *= 8;
  }
  return devices;
}

Mixture Drawing::next() {
  const auto any = [&] { return static_cast<Word>(dice_.below(kWords)); };
  if (next_ < std::size(kOnceWrong)) return kOnceWrong[next_++];
  if (dice_.one_in(100)) {  // the word that takes all devices, with others that take some
    for (;;)
      if (Mixture pair = {kTp3d, any()}; least_devices(pair) == 16 && !excludes(pair[0], pair[1])) {
        std::ranges::sort(pair);
        return pair;
      }
  }
  Mixture best;
  int least = 0;
  for (int tries = 0; tries < 40;) {
    Mixture triple = {any(), any(), any()};
    if (!possible(triple)) continue;
    std::ranges::sort(triple);
    ++tries;
    const int drawn = triples_[at(triple[0], triple[1], triple[2])].drawn;
    if (best.empty() || drawn < least) best = triple, least = drawn;
  }
  complete(best, dice_);
  // Open decisions are searched, which takes long; most pipelines have their micro-batches given.
  if (contains_any(best, kPp, kZbV) && !dice_.one_in(4)) add(best, kMb);
  // Larger meshes than the triple asks for take longer and show little more.
  for (uint32_t more = dice_.below(4); more > 0; --more) {
    Mixture longer = best;
    const Word word = any();
    if (!fits(longer, word)) continue;
    add(longer, word);
    if (complete(longer, dice_) && least_devices(longer) <= std::max<int64_t>(4, least_devices(best)))
      best = longer;
  }
  return best;
}

void Drawing::count(const Mixture& mixture, bool ran) {
  for (size_t i = 0; i < mixture.size(); ++i)
    for (size_t j = i + 1; j < mixture.size(); ++j) {
      Count& pair = pairs_[at(0, mixture[i], mixture[j])];
      ran ? ++pair.ran : ++pair.drawn;
      for (size_t k = j + 1; k < mixture.size(); ++k) {
        Count& triple = triples_[at(mixture[i], mixture[j], mixture[k])];
        ran ? ++triple.ran : ++triple.drawn;
      }
    }
}

Drawing::Coverage Drawing::pairs() const {
  Coverage all;
  for (size_t i = 0; i < kWords; ++i)
    for (size_t j = i + 1; j < kWords; ++j) {
      if (!possible({static_cast<Word>(i), static_cast<Word>(j)})) continue;
      ++all.possible;
      all.drawn += pairs_[at(0, i, j)].drawn > 0;
      all.ran += pairs_[at(0, i, j)].ran > 0;
    }
  return all;
}

Drawing::Coverage Drawing::triples() const {
  Coverage all;
  for (size_t i = 0; i < kWords; ++i)
    for (size_t j = i + 1; j < kWords; ++j)
      for (size_t k = j + 1; k < kWords; ++k) {
        if (!possible({static_cast<Word>(i), static_cast<Word>(j), static_cast<Word>(k)})) continue;
        ++all.possible;
        all.drawn += triples_[at(i, j, k)].drawn > 0;
        all.ran += triples_[at(i, j, k)].ran > 0;
      }
  return all;
}

}  // namespace mixtures
