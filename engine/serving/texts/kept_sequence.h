// KeptSequence: a sequence as a value: its tokens, without retaining pages. A fork
// is a copy, a rewind a shorter list of tokens. A request continues it with a
// prompt of these tokens and more; evicted pages are recomputed to the same bits.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/serving/pages/page_pool.h"
#include "engine/serving/pages/page_transfer.h"
#include "engine/serving/texts/answer_start.h"
#include "engine/serving/texts/grammar_source.h"

namespace tessera {

// KeptText: a constrained text within a sequence: its range and its grammar.
struct KeptText {
  GrammarSource source;
  AnswerStart start;
  size_t begin = 0;  // its first token
  size_t end = 0;    // tokens of the sequence at its end; 0: incomplete
};

struct KeptSequence {
  uint64_t root = 0;
  std::vector<int32_t> tokens;
  std::shared_ptr<const KeptText> text = nullptr;  // the last constrained text; null: none
};

// Writes the sequence and its cached pages to a file, atomically; of a model with recurrent layers those up to the newest snapshot,
// and its state. No copy of state may be pending. `model`: model_fingerprint.
Status save_sequence(const KeptSequence& sequence, uint64_t model, PagePool& pool, PageTransfer& transfer,
                     const std::string& path);

// SequenceOrigin: required origin of a file; `root` is optional.
struct SequenceOrigin {
  uint64_t model = 0;
  std::optional<uint64_t> root;
  int64_t vocabulary = 0;
};

// Reads a sequence from an untrusted file. Its keys and values go to unused pages, as
// far as there are any, and are recorded once the checksum is verified, with its state as a snapshot. kInvalidArgument
// for another model or layout, kCorrupt for damage; then nothing is recorded.
Result<KeptSequence> restore_sequence(const std::string& path, const SequenceOrigin& wanted, PagePool& pool,
                                      PageTransfer& transfer);

}  // namespace tessera
