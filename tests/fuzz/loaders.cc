#include "tests/fuzz/loaders.h"

namespace tessera::fuzz {

std::vector<std::unique_ptr<Loader>> all_loaders() {
  std::vector<std::unique_ptr<Loader>> loaders;
  for (const auto make :
       {model_loader,       checkpoint_loader, gguf_loader,           gguf_parts_loader,    huggingface_loader,
        adapter_loader,     importance_loader, tokenizer_loader,      hf_tokenizer_loader,  graph_text_loader,
        plan_text_loader,   device_profile_loader, chat_template_loader, sequence_loader,   training_row_loader,
        token_file_loader,  reference_file_loader, run_lines_loader,   cluster_loader})
    loaders.push_back(make());
  return loaders;
}

}  // namespace tessera::fuzz
