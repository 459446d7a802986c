// KeptSequence: a sequence as a value: its tokens, and a claim on pages that may hold its keys and values. It pins none. A
// fork is a copy, a rewind a shorter list of tokens; to go on is a request whose prompt is these tokens and more, which
// finds the pages or, where they are gone, computes them again to the same bits.
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

// A text that a grammar limits, within a sequence: where it begins, and what it is.
struct KeptText {
  GrammarSource source;
  AnswerStart start;
  size_t begin = 0;  // its first token
  size_t end = 0;    // tokens of the sequence with which it is complete; 0: it was cut
};

struct KeptSequence {
  uint64_t root = 0;
  std::vector<int32_t> tokens;
  std::shared_ptr<const KeptText> text = nullptr;  // the last one; null: none that a grammar limits
};

// Writes the sequence and what pages hold of it to a file, which is whole or as it was. `model`: model_fingerprint.
Status save_sequence(const KeptSequence& sequence, uint64_t model, PagePool& pool, PageTransfer& transfer,
                     const std::string& path);

// What a file has to be of; `root` where it is given.
struct SequenceOrigin {
  uint64_t model = 0;
  std::optional<uint64_t> root;
  int64_t vocabulary = 0;
};

// Reads a sequence from an untrusted file. Its keys and values go to pages without a user, as far as there are some, and
// are remembered once the file's checksum is known to be right. kInvalidArgument for a file of another model or layout,
// kCorrupt for one that is damaged; then nothing is remembered.
Result<KeptSequence> restore_sequence(const std::string& path, const SequenceOrigin& wanted, PagePool& pool,
                                      PageTransfer& transfer);

}  // namespace tessera
