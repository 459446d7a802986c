#include "random_adapter.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <random>
#include <span>
#include <vector>

#include "interruptible.h"

namespace cli {

namespace {

// Small, so that texts stay plausible.
constexpr float kLargest = 0.01f;

std::vector<std::string> parameters_of(const Model& model) {
  size_t count = 0;
  check(tsr_model_parameter_count(model.get(), &count));
  std::vector<std::string> names;
  for (size_t i = 0; i < count; ++i) names.push_back(short_text(tsr_model_parameter_name, model.get(), i));
  return names;
}

}  // namespace

RandomAdapter::Folder::Folder()
    : path((std::filesystem::temp_directory_path() / "tessera-adapter-XXXXXX").string()) {
  if (mkdtemp(path.data()) == nullptr)
    throw Error(TSR_IO, "cannot make a folder " + path + ": " + std::strerror(errno));
}

RandomAdapter::Folder::~Folder() {
  std::error_code ignored;
  std::filesystem::remove_all(path, ignored);
}

RandomAdapter::RandomAdapter(const Model& model, int64_t rank) {
  const Options options = make<Options>(tsr_options_new);
  set(options, "rank", rank);
  const Model adapted = make<Model>(tsr_model_add_adapters, model.get(), options.get());
  std::mt19937 random(1);
  std::uniform_real_distribution<float> number(-kLargest, kLargest);
  for (const std::string& name : parameters_of(adapted)) {
    const bool is_second = name.ends_with(".lora_b");  // the first matrices are drawn, these are zeros
    if (!is_second && !name.ends_with(".lora_a")) continue;
    const Tensor old = make<Tensor>(tsr_model_read, adapted.get(), name.c_str());
    const size_t count = tsr_tensor_bytes(old.get()) / sizeof(float);
    elements_ += static_cast<int64_t>(count);
    if (!is_second) continue;
    const Tensor drawn =
        make<Tensor>(tsr_tensor_new, TSR_F32, tsr_tensor_rank(old.get()), tsr_tensor_dims(old.get()));
    for (float& it : std::span(static_cast<float*>(tsr_tensor_writable(drawn.get())), count))
      it = number(random);
    check(tsr_model_write(adapted.get(), name.c_str(), drawn.get()));
  }
  const Options peft = make<Options>(tsr_options_new);
  set(peft, "format", std::string("peft"));
  const Work work = make<Work>(tsr_export_begin_for_model, static_cast<tsr_runtime*>(nullptr), adapted.get(),
                               path().c_str(), static_cast<const tsr_options*>(peft.get()));
  const Interruptible interruptible;
  for (int32_t done = 0; done == 0;) interruptible.check(tsr_work_step(work.get(), &done));
  check(tsr_export_finish(work.get(), nullptr));
}

}  // namespace cli
