#include "capi/engine/serving/kept_sequence.h"

#include <algorithm>
#include <span>
#include <utility>

#include "capi/engine/serving/cached_prefix.h"
#include "graph/base/text.h"
#include "serialize/sequence_file.h"

namespace tessera {

namespace {

// Pages of which one user each is given back at the end, the last ones first.
struct HeldPages {
  PagePool& pool;
  std::vector<int32_t> pages;

  ~HeldPages() {
    for (; !pages.empty(); pages.pop_back()) pool.give_back(pages.back());
  }
};

// Of positions [begin, end) of the pages.
std::vector<int32_t> slots_of(std::span<const int32_t> pages, int64_t page_size, int64_t begin, int64_t end) {
  std::vector<int32_t> slots;
  for (int64_t i = begin; i < end; ++i)
    slots.push_back(
        static_cast<int32_t>(pages[static_cast<size_t>(i / page_size)] * page_size + i % page_size));
  return slots;
}

Status write_rows(const SequenceHeader& header, std::span<const int32_t> pages, int64_t page_size,
                  PageTransfer& transfer, const std::string& path) {
  TSR_ASSIGN_OR_RETURN(SequenceFileWriter file, SequenceFileWriter::create(path, header));
  std::vector<std::byte> rows;
  for (int64_t begin = 0; begin < header.cached; begin += transfer.slots()) {
    const int64_t end = std::min(header.cached, begin + transfer.slots());
    rows.resize(static_cast<size_t>((end - begin) * transfer.row_bytes()));
    TSR_RETURN_IF_ERROR(transfer.read(slots_of(pages, page_size, begin, end), rows));
    TSR_RETURN_IF_ERROR(file.append(rows));
  }
  return file.commit();
}

std::string to_text(const PageState& state) {
  return format("'{}' {}[{}, {}]", state.name, to_text(state.dtype), state.heads, state.width);
}

// Whether the file is of this model, and its rows are what pages hold.
Status check_origin(const SequenceHeader& header, const SequenceOrigin& wanted,
                    const PageTransfer& transfer) {
  const auto refused = [](std::string message) {
    return Status(StatusCode::kInvalidArgument, std::move(message));
  };
  const std::span<const PageState> own = transfer.states();
  for (size_t i = 0; i < std::min(own.size(), header.states.size()); ++i)
    if (own[i] != header.states[i])
      return refused(format("it has keys or values {}, wanted {}: it is of another model or type of cache",
                            to_text(header.states[i]), to_text(own[i])));
  if (own.size() != header.states.size())
    return refused(format("it has keys and values of {} tensors, wanted {}: it is of another model",
                          header.states.size(), own.size()));
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

// Reads all rows, and puts those of positions [begin, end) in their pages.
Status read_rows(SequenceFileReader& file, std::span<const int32_t> pages, int64_t page_size, int64_t begin,
                 int64_t end, PageTransfer& transfer) {
  std::vector<std::byte> rows;
  for (int64_t at = 0; at < file.header().cached;) {
    const int64_t border = at < begin ? begin : at < end ? end : file.header().cached;
    const int64_t to = std::min({file.header().cached, at + transfer.slots(), border});
    rows.resize(static_cast<size_t>((to - at) * transfer.row_bytes()));
    TSR_RETURN_IF_ERROR(file.read_rows(rows));
    if (at >= begin && at < end)
      TSR_RETURN_IF_ERROR(transfer.write(slots_of(pages, page_size, at, to), rows));
    at = to;
  }
  return file.check();
}

}  // namespace

Status save_sequence(const KeptSequence& sequence, uint64_t model, PagePool& pool, PageTransfer& transfer,
                     const std::string& path) {
  CachedPrefix prefix = CachedPrefix::find(pool, PageIndex::root(sequence.root), sequence.tokens);
  const HeldPages held{pool, prefix.pages};
  SequenceHeader header{model,
                        sequence.root,
                        {transfer.states().begin(), transfer.states().end()},
                        sequence.tokens,
                        std::ssize(prefix.pages) * pool.page_size()};
  if (prefix.rest) {
    prefix.pages.push_back(prefix.rest->page);
    header.cached += prefix.rest->common;
  }
  return write_rows(header, prefix.pages, pool.page_size(), transfer, path);
}

Result<KeptSequence> restore_sequence(const std::string& path, const SequenceOrigin& wanted, PagePool& pool,
                                      PageTransfer& transfer) {
  TSR_ASSIGN_OR_RETURN(SequenceFileReader file, SequenceFileReader::open(path));
  const SequenceHeader& header = file.header();
  TSR_RETURN_IF_ERROR(check_origin(header, wanted, transfer).with_context(path));
  const int64_t size = pool.page_size();
  const auto tokens = std::span(header.tokens).first(static_cast<size_t>(header.cached));
  CachedPrefix prefix = CachedPrefix::find(pool, PageIndex::root(header.root), tokens);
  const size_t known = prefix.pages.size();
  HeldPages held{pool, std::move(prefix.pages)};
  std::vector<int32_t>& pages = held.pages;
  while (std::ssize(pages) * size < header.cached) {
    const std::optional<int32_t> page = pool.take();
    if (!page) break;
    pages.push_back(*page);
  }
  const int64_t begin = static_cast<int64_t>(known) * size,
                end = std::min(header.cached, std::ssize(pages) * size);
  TSR_RETURN_IF_ERROR(read_rows(file, pages, size, begin, end, transfer).with_context(path));
  PagePool::Content before = known == 0 ? PageIndex::root(header.root) : prefix.contents.back();
  for (size_t i = known; i < pages.size(); ++i) {
    const auto at = i * static_cast<size_t>(size);
    const auto of_page = tokens.subspan(at, std::min(static_cast<size_t>(size), tokens.size() - at));
    if (std::ssize(of_page) == size)
      before = pool.remember(pages[i], before, of_page);
    else
      pool.remember_beginning(pages[i], before, of_page);
  }
  return KeptSequence{header.root, header.tokens};
}

}  // namespace tessera
