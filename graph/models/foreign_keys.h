// ForeignKeys: the settings of a model in another project's configuration. A family's function names keys and our values, and
// is run by readers, which set the values, and by writers, which write the keys: one list for both directions.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

#include "graph/base/result.h"
#include "graph/models/model_config.h"

namespace tessera {

enum class KeyForm : uint8_t {
  kSame,
  kInverse,  // ours is 1 / theirs
};

class ForeignKeys {
 public:
  virtual ~ForeignKeys() = default;

  // Values by our names: for readers those read so far, for writers those of the model, defaults included.
  virtual const ModelConfig& values() const = 0;
  virtual void fail(StatusCode code, std::string message) = 0;

  // `ours` names a value of ModelConfig. `otherwise`: theirs where the key is absent; nullopt: the key must be given.
  virtual void size(std::string_view key, std::string_view ours, std::optional<int64_t> otherwise) = 0;
  virtual void real(std::string_view key, std::string_view ours, std::optional<double> otherwise, KeyForm form) = 0;
  virtual void flag(std::string_view key, std::string_view ours, bool otherwise) = 0;
  // Without the value where theirs is 0.
  virtual void size_or_zero(std::string_view key, std::string_view ours, int64_t otherwise) = 0;
  // One of several texts. Readers return the index of that in the file, writers write that of `index` and return it.
  virtual size_t choice(std::string_view key, std::initializer_list<std::string_view> texts, size_t index) = 0;

  void real(std::string_view key, std::string_view ours, std::optional<double> otherwise) {
    real(key, ours, otherwise, KeyForm::kSame);
  }
  // Sets a value that files of this kind do not state; for writers it must be the model's.
  void set_flag(std::string_view ours, bool value);

  int64_t our_size(std::string_view ours, int64_t otherwise = 0) const;
  double our_real(std::string_view ours, double otherwise = 0) const;
  bool our_flag(std::string_view ours, bool otherwise = false) const;

 protected:
  virtual ModelConfig* set_values() = 0;  // null for writers
};

}  // namespace tessera
