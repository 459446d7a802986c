#include "runtime/box_copy.h"

#include <array>
#include <cstring>

#include "graph/base/status.h"
#include "runtime/host_services.h"

namespace tessera {

namespace {

// Strips: a box as strided copies: rows of `row_bytes`, and an odometer over the outer dims.
struct Strips {
  int64_t row_bytes = 0, rows = 1, global_stride_bytes = 0;
  int outer_dims = 0;
  std::array<int64_t, kMaxRank> counts{};         // of the outer dims
  std::array<int64_t, kMaxRank> strides_bytes{};  // in the global tensor
  int64_t first_byte = 0;
};

Strips strips_of(const TensorType& type, const Box& box) {
  const int rank = type.shape.rank();
  TSR_CHECK(static_cast<size_t>(rank) == box.size(), "box and shape differ in rank");
  Strips strips;
  if (rank == 0) {
    strips.row_bytes = dtype_bytes(type.dtype, 1);
    return strips;
  }
  // `split_dim` is the last split dim: the dims inside it are one contiguous run.
  int split_dim = rank - 1;
  int64_t inside = 1;  // elements of one step along `split_dim`
  while (split_dim > 0 && box[static_cast<size_t>(split_dim)].size() == type.shape[split_dim]) inside *= type.shape[split_dim--];
  strips.row_bytes = dtype_bytes(type.dtype, box[static_cast<size_t>(split_dim)].size() * inside);
  strips.first_byte = dtype_bytes(type.dtype, box[static_cast<size_t>(split_dim)].begin * inside);
  int64_t step_bytes = dtype_bytes(type.dtype, type.shape[split_dim] * inside);
  if (split_dim > 0) {
    strips.rows = box[static_cast<size_t>(split_dim - 1)].size();
    strips.global_stride_bytes = step_bytes;
    strips.first_byte += box[static_cast<size_t>(split_dim - 1)].begin * step_bytes;
    step_bytes *= type.shape[split_dim - 1];
  }
  for (int dim = split_dim - 2; dim >= 0; --dim) {  // innermost first
    const auto at = static_cast<size_t>(strips.outer_dims++);
    strips.counts[at] = box[static_cast<size_t>(dim)].size();
    strips.strides_bytes[at] = step_bytes;
    strips.first_byte += box[static_cast<size_t>(dim)].begin * step_bytes;
    step_bytes *= type.shape[dim];
  }
  return strips;
}

// copy(global byte offset, local byte offset, strips) for every group of rows, in local order.
template <class Copy>
Status for_each_group(const Strips& strips, Copy copy) {
  std::array<int64_t, kMaxRank> at{};
  int64_t local = 0;
  for (;;) {
    int64_t global = strips.first_byte;
    for (int i = 0; i < strips.outer_dims; ++i)
      global += at[static_cast<size_t>(i)] * strips.strides_bytes[static_cast<size_t>(i)];
    TSR_RETURN_IF_ERROR(copy(global, local));
    local += strips.rows * strips.row_bytes;
    int dim = 0;
    for (; dim < strips.outer_dims; ++dim) {
      if (++at[static_cast<size_t>(dim)] < strips.counts[static_cast<size_t>(dim)]) break;
      at[static_cast<size_t>(dim)] = 0;
    }
    if (dim == strips.outer_dims) return {};
  }
}

}  // namespace

int64_t box_elements(const Box& box) {
  int64_t elements = 1;
  for (const Range& range : box) elements *= range.size();
  return elements;
}

Status copy_into_slot(const tsr_backend_api& api, tsr_abi_stream* stream, const std::byte* global,
                      const TensorType& type, const Box& box, void* local) {
  if (box_elements(box) == 0) return {};
  const Strips strips = strips_of(type, box);
  return for_each_group(strips, [&](int64_t global_at, int64_t local_at) {
    return take_error(api.copy(stream, global + global_at, static_cast<std::byte*>(local) + local_at,
                               strips.rows, strips.row_bytes, strips.global_stride_bytes, strips.row_bytes));
  });
}

Status copy_out_of_slot(const tsr_backend_api& api, tsr_abi_stream* stream, const void* local,
                        const TensorType& type, const Box& box, std::byte* global) {
  if (box_elements(box) == 0) return {};
  const Strips strips = strips_of(type, box);
  return for_each_group(strips, [&](int64_t global_at, int64_t local_at) {
    return take_error(api.copy(stream, static_cast<const std::byte*>(local) + local_at, global + global_at,
                               strips.rows, strips.row_bytes, strips.row_bytes, strips.global_stride_bytes));
  });
}

std::optional<int64_t> find_in_place(const TensorType& type, const Box& box) {
  if (box_elements(box) == 0) return 0;
  const Strips strips = strips_of(type, box);
  if (strips.rows > 1 && strips.row_bytes != strips.global_stride_bytes) return std::nullopt;
  int64_t step = strips.rows > 1 ? strips.rows * strips.row_bytes : strips.row_bytes;
  for (int i = 0; i < strips.outer_dims; ++i) {
    if (strips.counts[static_cast<size_t>(i)] == 1) continue;
    if (strips.strides_bytes[static_cast<size_t>(i)] != step) return std::nullopt;
    step *= strips.counts[static_cast<size_t>(i)];
  }
  return strips.first_byte;
}

namespace {

// visit(global, local, bytes) for every row, until it returns false.
template <class Visit>
bool for_each_row(const TensorType& type, const Box& box, Visit visit) {
  if (box_elements(box) == 0) return true;
  const Strips strips = strips_of(type, box);
  return for_each_group(
             strips,
             [&](int64_t global_at, int64_t local_at) {
               for (int64_t row = 0; row < strips.rows; ++row)
                 if (!visit(global_at + row * strips.global_stride_bytes, local_at + row * strips.row_bytes,
                            static_cast<size_t>(strips.row_bytes)))
                   return Status(StatusCode::kAborted, "");
               return Status();
             })
      .ok();
}

}  // namespace

void copy_box(const std::byte* global, const TensorType& type, const Box& box, std::byte* local) {
  for_each_row(type, box, [&](int64_t from, int64_t to, size_t bytes) {
    std::memcpy(local + to, global + from, bytes);
    return true;
  });
}

void put_box(const std::byte* local, const TensorType& type, const Box& box, std::byte* global) {
  for_each_row(type, box, [&](int64_t to, int64_t from, size_t bytes) {
    std::memcpy(global + to, local + from, bytes);
    return true;
  });
}

bool equals_box(const std::byte* global, const TensorType& type, const Box& box, const std::byte* local) {
  return for_each_row(type, box, [&](int64_t from, int64_t to, size_t bytes) {
    return std::memcmp(local + to, global + from, bytes) == 0;
  });
}

}  // namespace tessera
