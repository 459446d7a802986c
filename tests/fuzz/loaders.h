// The loaders under test: each makes a mutant from a valid file and reads it.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "graph/base/status.h"
#include "tests/fuzz/random.h"

namespace tessera::fuzz {

struct Outcome {
  bool past_header = false;  // magic number, sizes and checksums were right
  Status status;             // ok: accepted, and what was read has been used
};

class Loader {
 public:
  virtual ~Loader() = default;
  virtual std::string_view name() const = 0;
  virtual Outcome run(Random& random) = 0;
};

// Each in a file of its own (loaders/).
std::unique_ptr<Loader> model_loader();
std::unique_ptr<Loader> checkpoint_loader();
std::unique_ptr<Loader> gguf_loader();
std::unique_ptr<Loader> gguf_parts_loader();
std::unique_ptr<Loader> huggingface_loader();
std::unique_ptr<Loader> adapter_loader();
std::unique_ptr<Loader> importance_loader();
std::unique_ptr<Loader> tokenizer_loader();
std::unique_ptr<Loader> hf_tokenizer_loader();
std::unique_ptr<Loader> graph_text_loader();
std::unique_ptr<Loader> plan_text_loader();
std::unique_ptr<Loader> device_profile_loader();
std::unique_ptr<Loader> chat_template_loader();
std::unique_ptr<Loader> sequence_loader();
std::unique_ptr<Loader> training_row_loader();
std::unique_ptr<Loader> token_file_loader();
std::unique_ptr<Loader> reference_file_loader();
std::unique_ptr<Loader> run_lines_loader();
std::unique_ptr<Loader> cluster_loader();

std::vector<std::unique_ptr<Loader>> all_loaders();

}  // namespace tessera::fuzz
