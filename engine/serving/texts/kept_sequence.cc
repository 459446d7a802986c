#include "engine/serving/texts/kept_sequence.h"

#include <algorithm>
#include <span>
#include <utility>

#include "engine/serving/pages/cached_prefix.h"
#include "graph/base/text.h"
#include "serialize/sequence_file.h"

namespace tessera {

namespace {

// HeldPages: retained pages, with some of their window pages, released at destruction, last first.
struct HeldPages {
  PagePool& pool;
  std::vector<int32_t> pages;
  std::vector<int32_t> windows;  // pages whose window page is retained

  ~HeldPages() {
    for (const int32_t page : windows) pool.windows().give_back(page, true);
    for (; !pages.empty(); pages.pop_back()) pool.give_back(pages.back());
  }
};

HeldPages held_by(PagePool& pool, const CachedPrefix& prefix) {
  HeldPages held{pool, prefix.pages, {}};
  for (auto i = static_cast<size_t>(prefix.first_window); i < prefix.pages.size(); ++i)
    held.windows.push_back(prefix.pages[i]);
  return held;
}

// Slots of positions [begin, end) of the pages.
PageTransfer::Slots slots_of(const PagePool& pool, std::span<const int32_t> pages, bool with_windows,
                             int64_t begin, int64_t end) {
  const int64_t size = pool.page_size();
  PageTransfer::Slots slots{.pages = {}, .windows = {}, .with_windows = with_windows};
  for (int64_t i = begin; i < end; ++i) {
    const int32_t page = pages[static_cast<size_t>(i / size)], window = pool.windows().page_of(page);
    slots.pages.push_back(static_cast<int32_t>(page * size + i % size));
    slots.windows.push_back(window < 0 ? -1 : static_cast<int32_t>(window * size + i % size));
  }
  return slots;
}

// `snapshot`: the row of the header's states, if it has any.
Status write_rows(const SequenceHeader& header, const PagePool& pool, std::span<const int32_t> pages,
                  std::optional<int32_t> snapshot, PageTransfer& transfer, const std::string& path) {
  TSR_ASSIGN_OR_RETURN(SequenceFileWriter file, SequenceFileWriter::create(path, header));
  std::vector<std::byte> rows;
  for (int64_t begin = 0; begin < header.cached;) {
    const bool with_windows = begin >= header.window_from;
    const int64_t border = with_windows ? header.cached : header.window_from;
    const int64_t end = std::min(border, begin + transfer.slots());
    rows.resize(static_cast<size_t>((end - begin) * transfer.row_bytes(with_windows)));
    TSR_RETURN_IF_ERROR(transfer.read(slots_of(pool, pages, with_windows, begin, end), rows));
    TSR_RETURN_IF_ERROR(file.append(rows));
    begin = end;
  }
  if (snapshot) {
    rows.resize(static_cast<size_t>(header.state_bytes()));
    TSR_RETURN_IF_ERROR(transfer.read_row(*snapshot, rows));
    TSR_RETURN_IF_ERROR(file.append(rows));
  }
  return file.commit();
}

std::string to_text(const PageState& state) {
  return format("'{}' {}[{}, {}]", state.name, to_text(state.dtype), state.heads, state.width);
}

// Checks that the file's states, if it has any, are those of the model.
Status check_row_states(std::span<const RowState> found, std::span<const RowState> wanted) {
  const auto refused = [](std::string message) {
    return Status(StatusCode::kInvalidArgument, std::move(message));
  };
  if (found.empty()) return {};
  for (size_t i = 0; i < std::min(found.size(), wanted.size()); ++i)
    if (found[i] != wanted[i])
      return refused(format("it has state '{}' {}, wanted '{}' {}: it is of another model", found[i].name,
                            to_text(found[i].type), wanted[i].name, to_text(wanted[i].type)));
  if (found.size() != wanted.size())
    return refused(format("it has states of {} tensors, wanted {}: it is of another model", found.size(), wanted.size()));
  return {};
}

// Checks that the file is of this model and has the rows that pages hold.
Status check_origin(const SequenceHeader& header, const SequenceOrigin& wanted,
                    const PageTransfer& transfer) {
  const auto refused = [](std::string message) {
    return Status(StatusCode::kInvalidArgument, std::move(message));
  };
  const std::span<const PageState> own = transfer.states();
  for (size_t i = 0; i < std::min(own.size(), header.states.size()); ++i)
    if (!own[i].has_layout_of(header.states[i]))
      return refused(format("it has keys or values {}, wanted {}: it is of another model or type of cache",
                            to_text(header.states[i]), to_text(own[i])));
  if (own.size() != header.states.size())
    return refused(format("it has keys and values of {} tensors, wanted {}: it is of another model",
                          header.states.size(), own.size()));
  TSR_RETURN_IF_ERROR(check_row_states(header.rows, transfer.row_states()));
  if (header.model != wanted.model)
    return refused(
        format("it is of the model with fingerprint {}, wanted {}: other parameters, or computed in "
               "another precision",
               header.model, wanted.model));
  if (wanted.root && header.root != *wanted.root)
    return refused(format("it is of root {}, wanted {}", header.root, *wanted.root));
  if (header.tokens.empty()) return Status(StatusCode::kCorrupt, "it has no tokens");
  for (const int32_t token : header.tokens)
    if (token < 0 || token >= wanted.vocabulary)
      return refused(format("it has token id {}, the model has {} tokens", token, wanted.vocabulary));
  return {};
}

// Reads all rows; writes positions [begin, end) to their pages. Returns the states, whose sizes were compared with the file's.
Result<std::vector<std::byte>> read_rows(SequenceFileReader& file, const PagePool& pool, std::span<const int32_t> pages,
                                         int64_t begin, int64_t end, PageTransfer& transfer) {
  const SequenceHeader& header = file.header();
  std::vector<std::byte> rows;
  for (int64_t at = 0; at < header.cached;) {
    int64_t to = std::min(header.cached, at + transfer.slots());
    for (const int64_t border : {begin, end, header.window_from})
      if (at < border) to = std::min(to, border);
    rows.resize(static_cast<size_t>((to - at) * header.row_bytes(at)));
    TSR_RETURN_IF_ERROR(file.read_rows(rows));
    if (at >= begin && at < end)
      TSR_RETURN_IF_ERROR(transfer.write(slots_of(pool, pages, at >= header.window_from, at, to), rows));
    at = to;
  }
  rows.resize(static_cast<size_t>(header.state_bytes()));
  TSR_RETURN_IF_ERROR(file.read_rows(rows));
  TSR_RETURN_IF_ERROR(file.check());
  return rows;
}

// Makes the state after `before` and the tokens `rest` a snapshot, where a row is left for it.
Status keep_state(std::span<const std::byte> state, PagePool::Content before, std::span<const int32_t> rest, PagePool& pool,
                  PageTransfer& transfer) {
  const std::optional<int32_t> row = pool.snapshots().take(before, rest);
  if (!row) return {};
  Status written = transfer.write_row(*row, state);
  if (!written.ok()) pool.snapshots().forget(*row);
  return written;
}

// Whether the pages can hold the file's rows: either every position
// has all states, or the states are equal, including window states.
bool has_windows_of(const SequenceHeader& header, std::span<const PageState> own) {
  return header.window_from == 0 || std::ranges::equal(own, header.states);
}

// Takes pages for the file's positions that `held` lacks, and the window pages seen by the next
// token. Returns the positions with pages; those of `held` if the others cannot be continued.
int64_t take_pages(HeldPages& held, const SequenceHeader& header) {
  PagePool& pool = held.pool;
  WindowPages& windows = pool.windows();
  const int64_t size = pool.page_size(), known = std::ssize(held.pages);
  const int64_t wanted = (header.cached + size - 1) / size - known;
  const int64_t count = known + std::min(wanted, pool.available());
  const int64_t end = std::min(header.cached, count * size), first_window = windows.first_page(end);
  const int64_t wanted_windows = count - std::max(known, first_window);
  if (header.window_from > first_window * size || wanted_windows > windows.available()) return known * size;
  while (std::ssize(held.pages) < count) {
    const int32_t page = *pool.take();
    held.pages.push_back(page);
    if (std::ssize(held.pages) <= first_window || !windows.take(page)) continue;
    held.windows.push_back(page);
  }
  return end;
}

}  // namespace

Status save_sequence(const KeptSequence& sequence, uint64_t model, PagePool& pool, PageTransfer& transfer,
                     const std::string& path) {
  const bool has_state = !transfer.row_states().empty();
  CachedPrefix prefix = CachedPrefix::find(pool, PageIndex::root(sequence.root), sequence.tokens, has_state);
  const HeldPages held = held_by(pool, prefix);
  const std::span<const RowState> rows = prefix.snapshot ? transfer.row_states() : std::span<const RowState>();
  const SequenceHeader header{.model = model,
                              .root = sequence.root,
                              .states = {transfer.states().begin(), transfer.states().end()},
                              .rows = {rows.begin(), rows.end()},
                              .tokens = sequence.tokens,
                              .cached = prefix.size,
                              .window_from = pool.windows().first_page(prefix.size) * pool.page_size()};
  if (prefix.rest) prefix.pages.push_back(prefix.rest->page);
  return write_rows(header, pool, prefix.pages, prefix.snapshot, transfer, path);
}

Result<KeptSequence> restore_sequence(const std::string& path, const SequenceOrigin& wanted, PagePool& pool,
                                      PageTransfer& transfer) {
  TSR_ASSIGN_OR_RETURN(SequenceFileReader file, SequenceFileReader::open(path));
  const SequenceHeader& header = file.header();
  TSR_RETURN_IF_ERROR(check_origin(header, wanted, transfer).with_context(path));
  const int64_t size = pool.page_size();
  const auto tokens = std::span(header.tokens).first(static_cast<size_t>(header.cached));
  const CachedPrefix prefix = CachedPrefix::find(pool, PageIndex::root(header.root), tokens);
  HeldPages held = held_by(pool, prefix);
  const size_t known = held.pages.size();
  const int64_t begin = std::ssize(held.pages) * size;
  const bool is_usable = prefix.size < header.cached && has_windows_of(header, transfer.states());
  const int64_t end = is_usable ? take_pages(held, header) : begin;
  const Result<std::vector<std::byte>> state = read_rows(file, pool, held.pages, begin, end, transfer);
  if (!state.ok()) return state.status().with_context(path);
  PagePool::Content before = known == 0 ? PageIndex::root(header.root) : prefix.contents.back();
  for (size_t i = known; i < held.pages.size(); ++i) {
    const auto at = i * static_cast<size_t>(size);
    const auto of_page = tokens.subspan(at, std::min(static_cast<size_t>(size), tokens.size() - at));
    if (std::ssize(of_page) == size)
      before = pool.remember(held.pages[i], before, of_page);
    else
      pool.remember_beginning(held.pages[i], before, of_page);
  }
  if (const bool has_all = std::max(end, prefix.size) >= header.cached; has_all && !header.rows.empty())
    TSR_RETURN_IF_ERROR(keep_state(*state, before, tokens.subspan(static_cast<size_t>(header.cached / size * size)), pool, transfer));
  return KeptSequence{header.root, header.tokens, nullptr};
}

}  // namespace tessera
