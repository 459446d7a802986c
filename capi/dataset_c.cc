// tsr_dataset.
#include <algorithm>
#include <functional>
#include <string>

#include "capi/guard.h"
#include "capi/work.h"
#include "engine/base/text_file.h"
#include "engine/data/array_dataset.h"
#include "engine/data/text_dataset.h"
#include "graph/base/text.h"

using namespace tessera;
using namespace tessera::capi;

namespace {

// `make` takes Options and returns Result<shared_ptr<const Dataset>>.
template <class Make>
tsr_status* give_dataset(const tsr_options* options, tsr_dataset** out_dataset, Make&& make) noexcept {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{out_dataset, "out_dataset"}}));
    TSR_ASSIGN_OR_RETURN(auto dataset, make(options ? options->value : Options{}));
    *out_dataset = new tsr_dataset{std::move(dataset)};
    return {};
  });
}

using MadeDataset = Result<std::shared_ptr<const Dataset>>;
Status begin_reading(tsr_runtime* runtime, const Options& chosen, Status checked, tsr_work** out_work,
                     std::function<MadeDataset(const Options&)> read) {
  if (runtime) TSR_RETURN_IF_ERROR(runtime->value->check_process());
  TSR_RETURN_IF_ERROR(checked);
  return give_work(out_work, std::make_unique<Reading>("reading", runtime ? runtime->value : nullptr,
                                                       [read, chosen] { return read(chosen); }));
}

}  // namespace

tsr_status* tsr_dataset_new_file(const char* path, const tsr_tokenizer* tokenizer, const tsr_options* options,
                                 tsr_dataset** out_dataset) {
  return give_dataset(options, out_dataset, [&](const Options& chosen) -> MadeDataset {
    TSR_RETURN_IF_ERROR(required({{path, "path"}, {tokenizer, "tokenizer"}}));
    return open_dataset(path, tokenizer->value, chosen);
  });
}

tsr_status* tsr_dataset_new_text(const char* text, size_t size, const tsr_tokenizer* tokenizer,
                                 const tsr_options* options, tsr_dataset** out_dataset) {
  return give_dataset(options, out_dataset, [&](const Options& chosen) -> MadeDataset {
    TSR_RETURN_IF_ERROR(required({{text, "text"}, {tokenizer, "tokenizer"}}));
    return make_dataset(text_of(text, size), tokenizer->value, chosen);
  });
}

tsr_status* tsr_dataset_new_tokens(const int32_t* ids, size_t count, const tsr_options* options,
                                   tsr_dataset** out_dataset) {
  return give_dataset(options, out_dataset, [&](const Options& chosen) -> MadeDataset {
    if (count > 0) TSR_RETURN_IF_ERROR(required({{ids, "ids"}}));
    TSR_ASSIGN_OR_RETURN(std::shared_ptr<const Dataset> made,
                         TextDataset::create(std::vector<int32_t>(ids, ids + count), chosen));
    return made;
  });
}

tsr_status* tsr_dataset_begin_file(tsr_runtime* runtime, const char* path, const tsr_tokenizer* tokenizer,
                                   const tsr_options* options, tsr_work** out_work) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{path, "path"}, {tokenizer, "tokenizer"}, {out_work, "out_work"}}));
    const Options chosen = options ? options->value : Options{};
    return begin_reading(runtime, chosen, check_dataset_options(path, chosen), out_work,
                         [from = std::string(path), with = tokenizer->value](const Options& with_options) {
                           return open_dataset(from, with, with_options);
                         });
  });
}

tsr_status* tsr_dataset_begin_text(tsr_runtime* runtime, const char* text, size_t size,
                                   const tsr_tokenizer* tokenizer, const tsr_options* options,
                                   tsr_work** out_work) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{text, "text"}, {tokenizer, "tokenizer"}, {out_work, "out_work"}}));
    const Options chosen = options ? options->value : Options{};
    return begin_reading(
        runtime, chosen, check_text_options(text_of(text, size), chosen), out_work,
        [given = std::string(text_of(text, size)), with = tokenizer->value](const Options& with_options) {
          return make_dataset(given, with, with_options);
        });
  });
}

tsr_status* tsr_dataset_finish(tsr_work* work, tsr_dataset** out_dataset) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{work, "work"}, {out_dataset, "out_dataset"}}));
    TSR_ASSIGN_OR_RETURN(auto dataset, finish_work<Reading>(work));
    *out_dataset = new tsr_dataset{std::move(dataset)};
    return {};
  });
}

tsr_status* tsr_text_check(const char* text, size_t size, const char* name, int32_t takes_tables) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{text, "text"}, {name, "name"}}));
    return check_plain_text(text_of(text, size), name, name, takes_tables != 0);
  });
}

tsr_status* tsr_text_read(const char* path, size_t most, tsr_text** out_text) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{path, "path"}, {out_text, "out_text"}}));
    const size_t bound = most == 0 ? SIZE_MAX : most;
    const bool is_standard = std::string_view(path) == "-";
    TSR_ASSIGN_OR_RETURN(std::string text, is_standard ? read_standard_input("a text", bound)
                                                       : read_text_file(path, "file", bound));
    return give_text(std::move(text), out_text);
  });
}

tsr_status* tsr_text_write(const char* text, size_t size, const char* path) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{text, "text"}, {path, "path"}}));
    return write_text_file(path, text_of(text, size));
  });
}

tsr_status* tsr_text_check_path(const char* path, int32_t takes_devices) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{path, "path"}}));
    return check_text_path(path, takes_devices != 0);
  });
}

tsr_status* tsr_dataset_info(const tsr_dataset* dataset, tsr_text** out_text) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{dataset, "dataset"}, {out_text, "out_text"}}));
    TSR_ASSIGN_OR_RETURN(std::string info, dataset->value->info_json());
    return give_text(std::move(info), out_text);
  });
}

tsr_status* tsr_dataset_new_rows(int64_t rows, int64_t seq, const int32_t* tokens, const int32_t* labels,
                                 const float* weights, const int32_t* segments, const int32_t* positions,
                                 const tsr_options* options, tsr_dataset** out_dataset) {
  return give_dataset(options, out_dataset, [&](const Options& chosen) -> MadeDataset {
    TSR_RETURN_IF_ERROR(required({{tokens, "tokens"}}));
    const RowArrays arrays{rows, seq, tokens, labels, segments, positions, weights};
    return ArrayDataset::create(arrays, chosen);
  });
}

tsr_status* tsr_dataset_example(const tsr_dataset* dataset, int64_t number, tsr_text** out_json) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{dataset, "dataset"}, {out_json, "out_json"}}));
    TSR_ASSIGN_OR_RETURN(std::string example, dataset->value->example_json(number));
    return give_text(std::move(example), out_json);
  });
}

namespace {

Status check_batch(const Dataset& dataset, int64_t step, int64_t batch) {
  if (step >= 0 && batch >= 1 && batch <= (1 << 24) && step <= INT64_MAX / batch - 1 &&
      dataset.train_samples() > 0)
    return {};
  return Status(StatusCode::kInvalidArgument,
                format("step {}, batch {}, {} training samples: wanted step >= 0, batch >= 1, their "
                       "product below 2^63, and samples",
                       step, batch, dataset.train_samples()));
}

}  // namespace

tsr_status* tsr_dataset_rows(const tsr_dataset* dataset, int64_t step, int64_t batch, int32_t* tokens,
                             int32_t* labels, int32_t* positions, int32_t* segments, size_t capacity,
                             size_t* out_count) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{dataset, "dataset"}}));
    const Dataset& data = *dataset->value;
    TSR_RETURN_IF_ERROR(check_batch(data, step, batch));
    const auto seq = static_cast<size_t>(data.row_tokens());
    const size_t count = static_cast<size_t>(batch) * seq;
    std::vector<int32_t> filled(4 * seq);
    const std::span<int32_t> all(filled);
    const DatasetRow one{all.subspan(0, seq), all.subspan(seq, seq),
                         positions ? all.subspan(2 * seq, seq) : std::span<int32_t>(),
                         segments ? all.subspan(3 * seq, seq) : std::span<int32_t>()};
    int32_t* const outs[] = {tokens, labels, positions, segments};
    for (size_t at = 0; at < std::min(capacity, count); at += seq) {
      TSR_RETURN_IF_ERROR(data.fill_training_row(step * batch + static_cast<int64_t>(at / seq), one));
      for (size_t i = 0; i < std::size(outs); ++i)
        if (outs[i]) std::ranges::copy(all.subspan(i * seq, std::min(seq, capacity - at)), outs[i] + at);
    }
    if (out_count) *out_count = count;
    return {};
  });
}

tsr_status* tsr_dataset_batch(const tsr_dataset* dataset, int64_t step, int64_t batch, int32_t* items,
                              size_t capacity, size_t* out_count) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{dataset, "dataset"}}));
    TSR_RETURN_IF_ERROR(check_batch(*dataset->value, step, batch));
    const auto* const text = dynamic_cast<const TextDataset*>(dataset->value.get());
    if (text == nullptr)
      return Status(StatusCode::kFailedPrecondition,
                    "the dataset is not made of ids that were cut into samples: wanted tsr_dataset_rows");
    const int64_t width = dataset->value->seq() + 1;  // below 2^25, so that the product stays below 2^49
    const auto count = static_cast<size_t>(batch * width);
    const size_t fits = items ? std::min(capacity, count) : 0;
    for (size_t done = 0; done < fits;) {
      const auto row = static_cast<int64_t>(done) / width;
      const std::span<const int32_t> sample = text->training_sample(step * batch + row);
      const size_t part = std::min(fits - done, sample.size());
      std::copy_n(sample.begin(), part, items + done);
      done += part;
    }
    if (out_count) *out_count = count;
    return {};
  });
}

void tsr_dataset_free(tsr_dataset* dataset) { delete dataset; }
