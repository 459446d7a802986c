// ImportanceMatrix: for each input of a model's products the mean of its square over a text, which weighs the
// errors of quantisation. Read from llama.cpp's files: GGUF, and the older ones without a magic.
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
  // Reads and checks all of an untrusted file: kCorrupt. Entries of several matrices (experts) are left out.
  static Result<ImportanceMatrix> read(std::shared_ptr<const ByteSource> source);

  // One number for each column of a tensor by its name in GGUF ("blk.0.attn_q.weight"); empty: none.
  std::span<const float> find(std::string_view tensor) const;
  size_t size() const { return entries_.size(); }

 private:
  Status add(std::string name, std::vector<float> values, size_t matrices);

  std::map<std::string, std::vector<float>, std::less<>> entries_;
};

}  // namespace tessera
