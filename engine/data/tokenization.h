// Tokenization of training data: rows of files become a file of tokens, by all cores, a block of lines at a time, so that
// memory does not grow with the files. One that a cache holds is taken instead.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/data/data_settings.h"
#include "serialize/training_data/token_file.h"

namespace tessera {

// What became of the rows; it is kept in the file of tokens.
struct DataReport {
  int64_t rows = 0, bad = 0, too_long = 0, untrained = 0;
  int64_t truncated = 0;             // examples that were cut
  std::vector<std::string> ignored;  // fields that change nothing; the first few
  int64_t written_rows = 0;          // whose texts hold control tokens that are read as letters
  TokenNameCounts written_control;       // these; the first few
  struct Omission {
    int64_t file = 0, line = 0;
    std::string reason;
  };
  std::vector<Omission> omissions;  // the first few rows that were left out
};

struct TokenizedData {
  std::shared_ptr<const TokenFile> file;
  DataReport report;
  std::string cache;  // path of the kept file; "": none
};

// Of `paths`, or of `text` (null: none) in their place, with the settings' kind, examples and cache. kInvalidArgument with
// file and line for a row that is none.
Result<TokenizedData> tokenize(const std::vector<std::string>& paths, const std::string* text,
                               const DataSettings& settings,
                               const std::shared_ptr<const Tokenizer>& tokenizer);

}  // namespace tessera
