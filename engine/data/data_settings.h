// Settings of training data in rows, read from Options; tessera.h documents the keys.
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
  double weight = 1;  // passes over its examples per epoch
};

struct DataSettings {
  std::vector<DataFile> files;
  std::optional<std::string> text;  // rows in memory or from a pipe, instead of the file's
  bool is_told_by_content = false;  // rows are recognised by content, not by option or name
  std::string eval_file;            // "": none
  std::optional<RowKind> kind;
  std::string chat_template;
  ExampleOptions examples;
  bool skip_bad = false;
  std::string cache;  // folder of token files; "": no cache
  int64_t seq = 128;
  Packing packing = Packing::kOff;
  double eval_fraction = 0;
  bool shuffle = true;
  uint64_t seed = 0;
};

// Whether option `kind` is plain: a text, whatever its content.
bool is_plain(const Options& options);

// `path` may be "" if option `files` names the files; for rows in
// memory it is their name. kInvalidArgument for contradictory options.
Result<DataSettings> read_data_settings(const std::string& path, const Options& options);

}  // namespace tessera
