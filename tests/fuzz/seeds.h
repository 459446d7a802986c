// Seeds of the loaders: valid files, the places where they may be broken, and mutants of them; and what is done with
// a mutant that a reader accepted.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "graph/base/result.h"
#include "graph/graph.h"
#include "serialize/importance_matrix.h"
#include "serialize/model.h"
#include "tests/fuzz/random.h"
#include "tests/fuzz/sites.h"

namespace tessera::fuzz {

std::string read_file(const std::string& path);
void write_file(const std::string& path, std::string_view bytes);
void check_ok(const Status& status);  // throws: a seed has to be valid

// Goes away with what is in it.
class ScratchFolder {
 public:
  ScratchFolder();
  ~ScratchFolder();
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  std::string operator/(std::string_view name) const { return path_ + "/" + std::string(name); }

 private:
  std::string path_;
};

struct Seed {
  std::string file;
  std::vector<Site> sites;
};

// A file with an envelope, whose index follows serialize/schema/<schema>.fbs.
Seed enveloped_seed(std::string file, const std::string& schema);
// Mostly fields of the index, sometimes its bytes, its length, or the header.
std::string mutant_of(const Seed& seed, Random& random);
bool past_envelope(const std::string& file, std::string_view magic);

// Magic number and version are right and the counts fit into the file.
bool past_gguf_header(const std::string& file);
// A safetensors file of one level of objects with its header broken as text, sometimes cut or with another size.
std::string mutant_of_safetensors(const std::string& file, Random& random);
// GGUF models of every type of weights, eight to a file.
std::vector<std::string> block_models();
Graph rich_graph();

// Uses what was accepted; kInternal where it does not hold.
Status use(const Graph& graph);
Status use(const TokenizerData& data);
Status use(const Model& model);
Status use(const ImportanceMatrix& matrix);

template <class T>
Status use_result(const Result<T>& result) {
  return result.ok() ? use(*result) : result.status();
}

}  // namespace tessera::fuzz
