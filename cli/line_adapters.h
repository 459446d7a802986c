// LineAdapters: the low-rank adapters that lines of a file of requests name. Each is opened and loaded once.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "command.h"
#include "request_file.h"

namespace cli {

// --adapter of texts: PATH is put on the model, NAME=PATH is for the lines that say so.
struct AdapterArguments {
  std::string of_model;                      // empty: none
  std::map<std::string, std::string> named;  // paths
};
void add_adapters(CLI::App& command, std::vector<std::string>& words);
AdapterArguments read_adapters(const std::vector<std::string>& words);

class LineAdapters {
 public:
  // Opens each of them over `model`, which stays as it is. Throws with the place of the first line that names it.
  LineAdapters(const RequestFile& requests, const AdapterArguments& arguments, const Model& model);

  int64_t count() const { return static_cast<int64_t>(adapters_.size()); }
  int64_t rank() const { return rank_; }  // the largest
  // Before `number`. Throws as the constructor does.
  void load(const Engine& engine);
  // The engine's, of what a line says.
  int64_t number(const std::string& said) const { return adapters_[by_words_.at(said)].number; }

 private:
  struct Adapter {
    std::string path, place;
    int64_t number = -1;
  };

  std::vector<Adapter> adapters_;
  std::map<std::string, size_t> by_words_;
  int64_t rank_ = 0;
};

}  // namespace cli
