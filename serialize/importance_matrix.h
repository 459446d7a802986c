// ImportanceMatrix: the mean square of each input of a model's matmuls
// over a text, which weights quantisation errors. Reads llama.cpp's
// files, GGUF and the older format without a magic; writes GGUF.
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
  // Reads and checks an untrusted file: kCorrupt.
  static Result<ImportanceMatrix> read(std::shared_ptr<const ByteSource> source);

  // Numbers per column of a tensor by its GGUF name
  // ("blk.0.attn_q.weight"), concatenated for experts; empty: none.
  std::span<const float> find(std::string_view tensor) const;
  size_t size() const { return entries_.size(); }

 private:
  Status add(std::string name, std::vector<float> values);

  std::map<std::string, std::vector<float>, std::less<>> entries_;
};

// ImportanceSums: sums over a text.
struct ImportanceSums {
  std::map<std::string, std::vector<double>> squares;  // by GGUF tensor name: one per column
  int64_t rows = 0;                                    // summed positions
  int64_t windows = 0, window = 0;                     // count, and positions of each
  std::string text;                                    // name of the text
};

// Writes the file atomically.
Status write_importance(const ImportanceSums& sums, const std::string& path);

}  // namespace tessera
