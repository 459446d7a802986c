// ModelWriter: writes a .tsr file slice by slice, under a
// temporary name until `commit`; otherwise removes it. One thread.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "serialize/atomic_file.h"
#include "serialize/model.h"
#include "serialize/tensor_record.h"
#include "serialize/tensor_writer.h"

namespace tessera {

class ModelWriter {
 public:
  // `model` must outlive it; its values are not used.
  static Result<std::unique_ptr<ModelWriter>> create(const Model& model, const std::string& path,
                                                     SaveOptions options);

  // Begins the next parameter of the graph, in the order of names.
  Status begin(TensorSource parameter);
  Status write_slice();  // of the tensor begun
  bool is_writing() const { return tensor_.has_value(); }
  int64_t position() const { return tensor_ ? tensor_->position() : 0; }  // in the tensor begun
  // Calls begin, and writes all slices.
  Status write(TensorSource parameter);

  Status finish();  // writes the index, after the last tensor
  const std::string& temporary_path() const { return file_.temporary_path(); }
  const std::vector<TensorRecord>& records() const { return records_; }
  uint64_t bytes() const { return file_.position(); }
  Status commit();  // after finish

 private:
  ModelWriter(const Model& model, AtomicFile file, SaveOptions options)
      : model_(model), file_(std::move(file)), options_(options) {}

  const Model& model_;
  AtomicFile file_;
  const SaveOptions options_;
  std::optional<TensorWriter> tensor_;
  std::vector<TensorRecord> records_;
};

}  // namespace tessera
