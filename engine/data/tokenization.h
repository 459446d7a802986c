// Tokenization of training data into a token file, on all cores, a block of lines at
// a time, so that memory does not grow with the input. A cached token file is reused.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/data/data_settings.h"
#include "serialize/training_data/token_file.h"

namespace tessera {

// DataReport: statistics of the rows, stored in the token file.
struct DataReport {
  int64_t rows = 0, bad = 0, too_long = 0, untrained = 0;
  int64_t truncated = 0;             // shortened examples
  std::vector<std::string> ignored;  // fields without effect; the first few
  int64_t written_rows = 0;          // rows whose control tokens are read as letters
  TokenNameCounts written_control;       // those tokens; the first few
  struct Omission {
    int64_t file = 0, line = 0;
    std::string reason;
  };
  std::vector<Omission> omissions;  // skipped rows; the first few
};

struct TokenizedData {
  std::shared_ptr<const TokenFile> file;
  DataReport report;
  std::string cache;  // path of the cached file; "": none
};

// Tokenizes `paths`, or `text` instead (null: none), with the settings' kind,
// examples and cache. kInvalidArgument, with file and line, for an invalid row.
Result<TokenizedData> tokenize(const std::vector<std::string>& paths, const std::string* text,
                               const DataSettings& settings,
                               const std::shared_ptr<const Tokenizer>& tokenizer);

}  // namespace tessera
