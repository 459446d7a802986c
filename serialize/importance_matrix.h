// ImportanceMatrix: for each input of a model's products the mean of its square over a text, which weighs the
// errors of quantisation. llama.cpp's files: read as GGUF and in the older form without a magic, written as
// GGUF.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "graph/base/result.h"
#include "serialize/model.h"

namespace tessera {

class ImportanceMatrix {
 public:
  // Reads and checks all of an untrusted file: kCorrupt.
  static Result<ImportanceMatrix> read(std::shared_ptr<const ByteSource> source);

  // One number for each column of a tensor by its name in GGUF ("blk.0.attn_q.weight"), of several matrices
  // (experts) one after the other; empty: none.
  std::span<const float> find(std::string_view tensor) const;
  size_t size() const { return entries_.size(); }

 private:
  Status add(std::string name, std::vector<float> values);

  std::map<std::string, std::vector<float>, std::less<>> entries_;
};

// What was summed over a text.
struct ImportanceSums {
  std::map<std::string, std::vector<double>> squares;  // by a tensor's name in GGUF: one for each column
  int64_t rows = 0;                                    // positions that were summed
  int64_t windows = 0, window = 0;                     // count, and positions of each
  std::string text;                                    // its name, for people
};

// At once or not at all.
Status write_importance(const ImportanceSums& sums, const std::string& path);

}  // namespace tessera
