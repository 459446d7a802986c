#include "engine/serving/replicas/outbox.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <span>
#include <utility>

#include "graph/base/text.h"

namespace tessera {

namespace {

using Kind = ServingEvent::Kind;

Status not_waiting(int64_t request, int32_t index) {
  return Status(StatusCode::kNotFound,
                format("text {} of request {} does not wait for logits", index, request));
}

}  // namespace

void Outbox::begin(int64_t request, int64_t made, int64_t given) {
  const std::lock_guard lock(mutex_);
  in_progress_[request] = given;
  if (made > given) best_of_.watch(request, made, given);
}

void Outbox::withdraw(int64_t request) {
  const std::lock_guard lock(mutex_);
  in_progress_.erase(request);
  best_of_.forget(request);
  changed_.notify_all();
}

std::vector<int64_t> Outbox::put(std::vector<ServingEvent> events, const ServingCore& core) {
  std::vector<int64_t> ended;
  const std::lock_guard lock(mutex_);
  events = best_of_.filter(std::move(events));
  for (ServingEvent& event : events) {
    if (event.kind == Kind::kToken) generated_ += event.token >= 0;
    if (event.kind == Kind::kLogits) {
      const std::span<const float> kept = core.kept_logits(event.request, event.index);
      waiting_logits_[{event.request, event.index}].assign(kept.begin(), kept.end());
    }
    if (event.kind != Kind::kEnd) continue;
    waiting_logits_.erase({event.request, event.index});
    if (event.result) results_[event.request] = std::move(*event.result);
    if (event.sequence) kept_[{event.request, event.index}] = std::move(*event.sequence);
    if (const auto at = in_progress_.find(event.request); at != in_progress_.end() && --at->second == 0) {
      in_progress_.erase(at);
      ended.push_back(event.request);
    }
  }
  queue_.put(std::move(events));
  events_.store(queue_.size(), std::memory_order_release);
  changed_.notify_all();
  return ended;
}

Outbox::Taken Outbox::take(double timeout_s) {
  std::unique_lock lock(mutex_);
  if (timeout_s < 0) {
    changed_.wait(lock, [this] { return queue_.size() > 0 || in_progress_.empty(); });
  } else {
    changed_.wait_for(lock, std::chrono::duration<double>(std::min(timeout_s, 1e6)),
                      [this] { return queue_.size() > 0; });
  }
  std::optional<ServingEvent> event = queue_.take();
  if (!event) return {};
  events_.store(queue_.size(), std::memory_order_release);
  return {std::move(*event), queue_.size() + 1 == kEventsAhead};
}

Result<int32_t> Outbox::descriptor() {
  const std::lock_guard lock(mutex_);
  return queue_.descriptor();
}

Result<std::vector<float>> Outbox::logits(int64_t request, int32_t index) {
  const std::lock_guard lock(mutex_);
  const auto found = waiting_logits_.find({request, index});
  if (found == waiting_logits_.end()) return not_waiting(request, index);
  return found->second;
}

Status Outbox::take_logits(int64_t request, int32_t index) {
  const std::lock_guard lock(mutex_);
  return waiting_logits_.erase({request, index}) > 0 ? Status() : not_waiting(request, index);
}

Result<KeptSequence> Outbox::take_sequence(int64_t request, int32_t index) {
  const std::lock_guard lock(mutex_);
  const auto found = kept_.find({request, index});
  if (found == kept_.end())
    return Status(
        StatusCode::kNotFound,
        format("text {} of request {} is not kept: wanted one that has ended, of a request with the option "
               "'keep', and whose sequence was not taken yet",
               index, request));
  KeptSequence sequence = std::move(found->second);
  kept_.erase(found);
  return sequence;
}

Result<size_t> Outbox::take_result(int64_t request, bool scores, std::span<float> items,
                                   std::span<uint8_t> greedy) {
  const std::lock_guard lock(mutex_);
  const auto found = results_.find(request);
  if (found == results_.end() || found->second.is_scores != scores)
    return Status(
        StatusCode::kNotFound,
        format("request {} has no {}: wanted one with the option '{}' that has ended, and whose result was "
               "not taken yet",
               request, scores ? "scores" : "embedding", scores ? "score_from" : "embed"));
  const PromptResult& result = found->second;
  const size_t count = result.values.size();
  std::ranges::copy(std::span(result.values).first(std::min(count, items.size())), items.begin());
  std::ranges::copy(std::span(result.greedy).first(std::min(result.greedy.size(), greedy.size())),
                    greedy.begin());
  if (items.size() >= count) results_.erase(found);
  return count;
}

int64_t Outbox::generated() const {
  const std::lock_guard lock(mutex_);
  return generated_;
}

}  // namespace tessera
