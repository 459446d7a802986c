// RandomAdapter: a low-rank adapter of a model with random elements, in a temporary folder removed with it.
#pragma once

#include <cstdint>
#include <string>

#include "command.h"

namespace cli {

class RandomAdapter {
 public:
  RandomAdapter(const Model& model, int64_t rank);
  RandomAdapter(const RandomAdapter&) = delete;
  RandomAdapter& operator=(const RandomAdapter&) = delete;

  std::string path() const { return folder_.path + "/adapter"; }  // of PEFT's
  int64_t elements() const { return elements_; }

 private:
  struct Folder {
    Folder();
    ~Folder();
    std::string path;
  };

  Folder folder_;
  int64_t elements_ = 0;
};

}  // namespace cli
