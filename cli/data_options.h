// Options of training data, which `train`, `eval` and `data` share.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "command.h"

namespace cli {

struct DataOptions {
  std::string path;  // a file, or JSON of several
  std::string template_file, template_name;
  bool special = false, skip_bad = false, no_append_end = false;
  // Absent: the library's default.
  std::optional<std::string> kind, mask, truncation, untrained, packing, eval_file, cache;
  std::optional<int64_t> seq, max_length;
  double eval_fraction = 0;
};

// Adds all options except the path, --seq and --eval-fraction, which a command adds.
void add_data_options(CLI::App& command, DataOptions& data);
bool holds_rows(const Dataset& dataset);  // not a plain text
// The dataset, with the model's tokenizer and chat template. Shows its progress.
// Throws where an option's value is none, before files are read.
void check_data_options(const Common& common, const DataOptions& data);

Dataset open_data(const Common& common, const DataOptions& data, const Model& model,
                  const std::string& model_path);

// Reports omitted and cut rows on standard error, before hours of training.
void say_what_is_learnt(const Common& common, const DataOptions& data, const Dataset& dataset);

}  // namespace cli
