// Settings of training data in rows, read from Options; the keys are documented in tessera.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/options.h"
#include "serialize/training_data/example.h"
#include "serialize/training_data/packing.h"
#include "serialize/training_data/row.h"

namespace tessera {

struct DataFile {
  std::string path;
  double weight = 1;  // times that an epoch has its examples
};

struct DataSettings {
  std::vector<DataFile> files;
  std::optional<std::string> text;  // rows in memory, or of a pipe, in place of the file's
  bool is_told_by_content = false;  // that these are rows: no option or name says so
  std::string eval_file;            // "": none
  std::optional<RowKind> kind;
  std::string chat_template;
  ExampleOptions examples;
  bool skip_bad = false;
  std::string cache;  // a folder; "": nothing is kept
  int64_t seq = 128;
  Packing packing = Packing::kOff;
  double eval_fraction = 0;
  bool shuffle = true;
  uint64_t seed = 0;
};

// Whether option `kind` says plain: a text whatever it looks like.
bool is_plain(const Options& options);

// `path` may be "" where option `files` names them; of rows in memory it is a name for them. kInvalidArgument for options
// that do not go together.
Result<DataSettings> read_data_settings(const std::string& path, const Options& options);

}  // namespace tessera
