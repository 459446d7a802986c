// Readers of transformers' classes, one function per model_type, with the class's defaults.
#pragma once

#include "serialize/import/huggingface_reader.h"

namespace tessera {

// huggingface_dense.cc
void read_gpt2(HuggingfaceReader& r);
void read_granite(HuggingfaceReader& r);
void read_llama(HuggingfaceReader& r);
void read_mistral(HuggingfaceReader& r);
void read_olmo2(HuggingfaceReader& r);
void read_olmo3(HuggingfaceReader& r);
void read_phi3(HuggingfaceReader& r);
void read_qwen2(HuggingfaceReader& r);
void read_qwen3(HuggingfaceReader& r);
void read_smollm3(HuggingfaceReader& r);

// huggingface_encoder_config.cc: BERT and its relatives
void read_encoder(HuggingfaceReader& r);

// huggingface_gemma.cc
void read_gemma(HuggingfaceReader& r);
void read_gemma2(HuggingfaceReader& r);
void read_gemma3(HuggingfaceReader& r);

// huggingface_experts.cc
void read_deepseek_v2(HuggingfaceReader& r);
void read_deepseek_v3(HuggingfaceReader& r);
void read_gpt_oss(HuggingfaceReader& r);
void read_mixtral(HuggingfaceReader& r);
void read_qwen2_moe(HuggingfaceReader& r);
void read_qwen3_moe(HuggingfaceReader& r);

}  // namespace tessera
