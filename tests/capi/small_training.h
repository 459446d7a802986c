// What several tests train: a model by its description, and a text that repeats itself.
#pragma once

#include <string>

#include "tests/capi/c_api.h"

namespace capi_test {

inline Model described(const char* description) {
  tsr_model* made = nullptr;
  ok(tsr_model_new(description, options({{"seed", 7}}).get(), &made));
  return Model(made);
}

inline Dataset bytes_dataset() {
  tsr_tokenizer* tokenizer = nullptr;
  ok(tsr_tokenizer_new_bytes(&tokenizer));
  const Tokenizer owned(tokenizer);
  std::string words;
  for (int i = 0; i < 60; ++i) words += "the tiles of one mosaic lie side by side; ";
  tsr_dataset* made = nullptr;
  ok(tsr_dataset_new_text(words.c_str(), words.size(), owned.get(),
                          options({{"seq", 32}, {"eval_fraction", 0.2}}).get(), &made));
  return Dataset(made);
}

}  // namespace capi_test
