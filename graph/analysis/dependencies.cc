#include "graph/analysis/dependencies.h"

#include <algorithm>
#include <array>
#include <map>

#include "graph/analysis/instructions.h"
#include "graph/base/cancellation.h"
#include "graph/base/text.h"

namespace tessera {

namespace {

// ArenaHistory: the last writer of each byte of one arena, and its readers since.
class ArenaHistory {
 public:
  // Appends to `found` the instructions that an access by `instruction` waits for, then records the access.
  void access(int64_t begin, int64_t end, bool is_write, int32_t instruction, std::vector<int32_t>& found) {
    split(begin);
    split(end);
    auto at = spans_.lower_bound(begin);
    for (int64_t next = begin; next < end;) {  // fills the gaps that nobody has touched yet
      if (at == spans_.end() || at->first > next) {
        const int64_t stop = at == spans_.end() ? end : std::min(end, at->first);
        at = spans_.emplace_hint(at, next, Span{stop, -1, {}});
      }
      Span& span = at->second;
      if (is_write) found.insert(found.end(), span.readers.begin(), span.readers.end());
      if (span.writer >= 0 && (!is_write || span.readers.empty())) found.push_back(span.writer);
      if (!is_write && (span.readers.empty() || span.readers.back() != instruction))
        span.readers.push_back(instruction);
      next = span.end;
      ++at;
    }
    if (!is_write || begin >= end) return;
    spans_.erase(spans_.lower_bound(begin), spans_.lower_bound(end));
    spans_.emplace(begin, Span{end, instruction, {}});
  }

 private:
  struct Span {
    int64_t end;
    int32_t writer;                // -1: none in this run
    std::vector<int32_t> readers;  // since the write; each waits for the writer
  };
  void split(int64_t at) {
    auto after = spans_.upper_bound(at);
    if (after == spans_.begin()) return;
    const auto before = std::prev(after);
    if (before->first == at || before->second.end <= at) return;
    Span tail = before->second;
    before->second.end = at;
    spans_.emplace_hint(after, at, std::move(tail));
  }

  std::map<int64_t, Span> spans_;  // by begin; disjoint
};

class Analysis {
 public:
  Analysis(const RankProgram& rank, const EntryPoint& entry, const StreamOptions& options)
      : rank_(rank), code_(entry.code), options_(options), needs_(entry.code.size()) {}

  Dependencies run() {
    find_needs();
    name_streams();
    for (size_t i = 0; i < code_.size(); ++i) place(i);
    result_.wait_begin.push_back(static_cast<int32_t>(result_.waits.size()));
    drop_empty_streams();
    return std::move(result_);
  }

 private:
  // Finds the needed instructions of each instruction, by bytes and by the order within a communicator; ascending.
  void find_needs() {
    std::array<ArenaHistory, 3> arenas;
    std::vector<int32_t> last_of_channel(rank_.groups.size(), -1);
    std::vector<ByteAccess> accesses;
    for (size_t i = 0; i < code_.size(); ++i) {
      cancellation_point();
      std::vector<int32_t>& needs = needs_[i];
      find_accesses(rank_, code_[i], accesses);
      for (const ByteAccess& access : accesses)
        arenas[static_cast<size_t>(access.tier)].access(access.begin, access.end, access.is_write,
                                                        static_cast<int32_t>(i), needs);
      if (const auto* collective = std::get_if<CollectiveInst>(&code_[i])) {
        int32_t& last = last_of_channel[channel_of(collective->group)];
        if (last >= 0) needs.push_back(last);
        last = static_cast<int32_t>(i);
      }
      std::ranges::sort(needs);
      needs.erase(std::unique(needs.begin(), needs.end()), needs.end());
      // Its own earlier access to the same bytes is no dependency.
      if (!needs.empty() && needs.back() == static_cast<int32_t>(i)) needs.pop_back();
    }
  }

  // Groups of equal ranks and axis are one communicator.
  size_t channel_of(int32_t group) const {
    const Group& mine = rank_.groups[static_cast<size_t>(group)];
    size_t first = 0;
    while (rank_.groups[first].ranks != mine.ranks || rank_.groups[first].axis != mine.axis) ++first;
    return first;
  }

  Tier tier_of(const SlotRef& ref) const { return rank_.slots[static_cast<size_t>(ref.slot)].tier; }

  // Returns the stream of an instruction that could overlap with others.
  StreamId preferred(const Instruction& instruction) const {
    if (std::holds_alternative<CollectiveInst>(instruction)) return {StreamKind::kCollectives, -1};
    if (const auto* send = std::get_if<SendInst>(&instruction)) return {StreamKind::kSend, send->peer};
    if (const auto* recv = std::get_if<RecvInst>(&instruction)) return {StreamKind::kReceive, recv->peer};
    if (const auto* copy = std::get_if<CopyInst>(&instruction))
      if (copy->in.slot >= 0 && tier_of(copy->in) != tier_of(copy->out)) return {StreamKind::kCopies, -1};
    return {};
  }

  void name_streams() {
    for (const Instruction& instruction : code_) ids_.push_back(preferred(instruction));
    std::vector<StreamId> all = ids_;
    all.push_back({});
    std::ranges::sort(all);
    all.erase(std::unique(all.begin(), all.end()), all.end());
    for (const StreamId& id : all) result_.streams.push_back({id, {}});
    known_.resize(code_.size() * all.size());
    now_.resize(all.size());
  }

  // Assigns the instruction's stream and waits. Vector clocks: known_[i][t] instructions of stream t are done
  // once instruction i is. The latest need comes first, since its clock may cover the earlier ones.
  void place(size_t i) {
    if (stays_inline(i)) ids_[i] = {};
    const auto mine = static_cast<size_t>(
        std::ranges::lower_bound(result_.streams, ids_[i], {}, &Stream::id) - result_.streams.begin());
    Stream& stream = result_.streams[mine];
    const size_t streams = result_.streams.size();
    for (size_t t = 0; t < streams; ++t)
      now_[t] = stream.code.empty() ? 0 : known_[static_cast<size_t>(stream.code.back()) * streams + t];
    result_.wait_begin.push_back(static_cast<int32_t>(result_.waits.size()));
    for (auto need = needs_[i].rbegin(); need != needs_[i].rend(); ++need) {
      const auto at = static_cast<size_t>(*need);
      if (now_[static_cast<size_t>(result_.stream[at])] > result_.position[at]) continue;
      result_.waits.push_back({result_.stream[at], result_.position[at]});
      for (size_t t = 0; t < streams; ++t) now_[t] = std::max(now_[t], known_[at * streams + t]);
    }
    result_.stream.push_back(static_cast<int32_t>(mine));
    result_.position.push_back(static_cast<int32_t>(stream.code.size()));
    stream.code.push_back(static_cast<int32_t>(i));
    now_[mine] = result_.position[i] + 1;
    std::ranges::copy(now_, known_.begin() + static_cast<std::ptrdiff_t>(i * streams));
  }

  // Returns whether the instruction stays on the compute stream. Small ones do, except where
  // computation would have to wait for others because of it: for those before it in its communicator.
  bool stays_inline(size_t i) const {
    if (ids_[i].kind != StreamKind::kCollectives && ids_[i].kind != StreamKind::kCopies) return false;
    if (!can_overlap(i)) return true;
    if (instruction_bytes(rank_, code_[i]) >= options_.inline_below_bytes) return false;
    const Stream& compute = result_.streams[0];
    const size_t streams = result_.streams.size();
    return std::ranges::all_of(needs_[i], [&](int32_t need) {
      const auto at = static_cast<size_t>(need), stream = static_cast<size_t>(result_.stream[at]);
      return stream == 0 ||
             (!compute.code.empty() &&
              known_[static_cast<size_t>(compute.code.back()) * streams + stream] > result_.position[at]);
    });
  }

  void drop_empty_streams() {
    std::vector<int32_t> renumbered;
    std::vector<Stream> kept;
    for (Stream& stream : result_.streams) {
      renumbered.push_back(static_cast<int32_t>(kept.size()));
      if (!stream.code.empty() || stream.id == StreamId{}) kept.push_back(std::move(stream));
    }
    result_.streams = std::move(kept);
    for (int32_t& stream : result_.stream) stream = renumbered[static_cast<size_t>(stream)];
    for (StreamWait& wait : result_.waits) wait.stream = renumbered[static_cast<size_t>(wait.stream)];
  }

  // Returns whether the computation next to `i`, before or after it in program order, is independent of it.
  bool can_overlap(size_t i) const {
    constexpr size_t kFarthest =
        64;  // with more non-compute instructions than that in a row, assume that it can
    size_t before = i, after = i + 1;
    while (before > 0 && ids_[before - 1].kind != StreamKind::kCompute) --before;
    while (after < code_.size() && ids_[after].kind != StreamKind::kCompute) ++after;
    if (after - before > kFarthest) return true;
    if (before > 0 && !leads_to(before - 1, i)) return true;
    return after < code_.size() && !leads_to(i, after);
  }

  // Returns whether `to` needs `from`, directly or through instructions between them.
  bool leads_to(size_t from, size_t to) const {
    std::vector<bool> reached(to - from + 1, false);
    reached[0] = true;
    for (size_t i = from + 1; i <= to; ++i)
      for (const int32_t need : needs_[i])
        if (static_cast<size_t>(need) >= from && reached[static_cast<size_t>(need) - from])
          reached[i - from] = true;
    return reached[to - from];
  }

  const RankProgram& rank_;
  const std::vector<Instruction>& code_;
  const StreamOptions& options_;
  std::vector<std::vector<int32_t>> needs_;  // by instruction
  std::vector<StreamId> ids_;                // by instruction: the preferred stream, until it is placed
  std::vector<int32_t> known_, now_;
  Dependencies result_;
};

}  // namespace

std::string to_text(const StreamId& id) {
  switch (id.kind) {
    case StreamKind::kCompute: return "compute";
    case StreamKind::kCollectives: return "collectives";
    case StreamKind::kCopies: return "copies";
    case StreamKind::kSend: return format("send to {}", id.peer);
    case StreamKind::kReceive: return format("receive from {}", id.peer);
  }
  return "?";
}

int32_t track_of(const StreamId& id) {
  constexpr int32_t kFirstOfPeers = 4;
  const auto kind = static_cast<int32_t>(id.kind);
  if (id.peer < 0) return kind;
  return kFirstOfPeers + 2 * id.peer + (id.kind == StreamKind::kReceive ? 1 : 0);
}

size_t working_ranks(const Program& program) {
  return static_cast<size_t>(std::ranges::count_if(program.ranks, [](const RankProgram& rank) {
    return std::ranges::any_of(rank.entries, [](const EntryPoint& entry) { return !entry.code.empty(); });
  }));
}

StreamOptions usual_streams(size_t ranks, int32_t shared_cores) {
  if (shared_cores == 0 || ranks < static_cast<size_t>(shared_cores)) return {};
  return {.inline_below_bytes = int64_t{1} << 20};
}

Dependencies find_dependencies(const RankProgram& rank, const EntryPoint& entry,
                               const StreamOptions& options) {
  return Analysis(rank, entry, options).run();
}

}  // namespace tessera
