#include "engine/serving/pages/page_index.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "graph/base/hash.h"
#include "graph/base/status.h"

namespace tessera {

bool PageIndex::Lexicographic::operator()(std::span<const int32_t> a, std::span<const int32_t> b) const {
  return std::ranges::lexicographical_compare(a, b);
}

size_t PageIndex::ContentHash::operator()(const Content& content) const {
  Hash hash;
  hash.add(content.number);
  hash.add(content.is_root);
  return static_cast<size_t>(hash.value());
}

std::optional<PageIndex::Found> PageIndex::find(Content before, std::span<const int32_t> tokens) const {
  const auto following = following_.find(before);
  if (following == following_.end()) return std::nullopt;
  const auto at = following->second.find(tokens);
  if (at == following->second.end()) return std::nullopt;
  return Found{at->second.page, at->second.content};
}

std::optional<PageIndex::Beginning> PageIndex::find_beginning(Content before,
                                                              std::span<const int32_t> tokens) const {
  const auto following = following_.find(before);
  if (following == following_.end()) return std::nullopt;
  std::optional<Beginning> best;
  const auto consider = [&](Following::const_iterator at) {
    const std::vector<int32_t>& known = at->first;
    const int64_t common = std::ranges::mismatch(known, tokens).in1 - known.begin();
    if (common > (best ? best->common : 0)) best = Beginning{at->second.page, common, std::ssize(known)};
  };
  const auto after = following->second.lower_bound(tokens);
  // An exact match is considered first, so that overwriting the page loses no other prefix.
  if (after != following->second.begin()) consider(std::prev(after));
  if (after != following->second.end()) consider(after);
  return best;
}

PageIndex::Chain PageIndex::find_chain(Content root, std::span<const int32_t> tokens,
                                       int64_t page_size) const {
  const std::lock_guard lock(changing_);
  const auto size = static_cast<size_t>(page_size);
  Chain chain;
  Content before = root;
  for (; tokens.size() >= size; tokens = tokens.subspan(size)) {
    const auto found = find(before, tokens.first(size));
    if (!found) break;
    before = found->content;
    chain.pages.push_back(found->page);
  }
  chain.rest = find_beginning(before, tokens.first(std::min(tokens.size(), size)));
  return chain;
}

PageIndex::Content PageIndex::insert(int32_t page, Content before, std::span<const int32_t> tokens) {
  const std::lock_guard lock(changing_);
  erase_known(page);
  const auto [at, is_new] = following_[before].try_emplace(std::vector<int32_t>(tokens.begin(), tokens.end()),
                                                           Known{page, {next_, false}});
  if (is_new) {
    ++next_;
    known_as_[static_cast<size_t>(page)] = Place{before, at};
  }
  return at->second.content;
}

std::optional<int32_t> PageIndex::replace(int32_t page, Content before, std::span<const int32_t> tokens) {
  const std::lock_guard lock(changing_);
  const auto following = following_.find(before);
  TSR_CHECK(following != following_.end(), "a page that is not known is replaced");
  const auto at = following->second.find(tokens);
  TSR_CHECK(at != following->second.end(), "a page that is not known is replaced");
  const int32_t other = std::exchange(at->second.page, page);
  if (other == page) return std::nullopt;
  known_as_[static_cast<size_t>(other)].reset();
  erase_known(page);
  known_as_[static_cast<size_t>(page)] = Place{before, at};
  return other;
}

void PageIndex::erase(int32_t page) {
  const std::lock_guard lock(changing_);
  erase_known(page);
}

void PageIndex::erase_known(int32_t page) {
  std::optional<Place>& place = known_as_[static_cast<size_t>(page)];
  if (!place) return;
  const auto following = following_.find(place->before);
  following->second.erase(place->at);
  if (following->second.empty()) following_.erase(following);
  place.reset();
}

void PageIndex::truncate(int32_t page, int64_t count) {
  TSR_CHECK(contains(page), "a page that holds nothing known is cut");
  const Place place = *known_as_[static_cast<size_t>(page)];
  const std::vector<int32_t> tokens(place.at->first.begin(), place.at->first.begin() + count);
  insert(page, place.before, tokens);
}

}  // namespace tessera
