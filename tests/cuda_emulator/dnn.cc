// cuDNN's graph interface as its headers and manual say: descriptors with attributes, engines for any graph,
// and plans that compute operation by operation in plain loops. TESSERA_EMULATED_CUDNN: "missing" (the
// library is), "refuses" (has no engine), "fails" (to run), "wrong" (one value in the last row), "unordered"
// (every other run leaves another last bit), "large" (workspaces are).
#include <cudnn_graph.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "graph/base/half.h"
#include "graph/base/text.h"
#include "runtime/backends/cuda/dnn_library.h"
#include "tests/cuda_emulator/runtime.h"

namespace tessera::cuda {

namespace {

bool told_to(std::string_view what) {
  const char* told = std::getenv("TESSERA_EMULATED_CUDNN");
  return told != nullptr && what == told;
}

// A descriptor's contents; others that name it share it, so that it may be destroyed before them.
struct Content {
  cudnnBackendDescriptorType_t type;
  bool finished = false;
  std::map<int, std::vector<char>> values;
  std::map<int, std::vector<std::shared_ptr<Content>>> links;

  template <class T>
  std::vector<T> all(int name) const {
    const auto found = values.find(name);
    if (found == values.end()) return {};
    std::vector<T> out(found->second.size() / sizeof(T));
    std::memcpy(out.data(), found->second.data(), out.size() * sizeof(T));
    return out;
  }
  template <class T>
  T one(int name, T otherwise = {}) const {
    const auto found = all<T>(name);
    return found.size() == 1 ? found[0] : otherwise;
  }
  const std::shared_ptr<Content>& link(int name) const {
    static const std::shared_ptr<Content> none;
    const auto found = links.find(name);
    return found == links.end() || found->second.empty() ? none : found->second[0];
  }
};
struct Descriptor {
  std::shared_ptr<Content> content;
};
Content& content_of(cudnnBackendDescriptor_t descriptor) {
  return *static_cast<Descriptor*>(descriptor)->content;
}

thread_local const char* t_error = "";
cudnnStatus_t bad(const char* why, cudnnStatus_t status = CUDNN_STATUS_BAD_PARAM) {
  t_error = why;
  return status;
}

size_t size_of(cudnnBackendAttributeType_t type) {
  switch (type) {
    case CUDNN_TYPE_BOOLEAN:
    case CUDNN_TYPE_CHAR: return 1;
    case CUDNN_TYPE_INT64:
    case CUDNN_TYPE_DOUBLE:
    case CUDNN_TYPE_HANDLE:
    case CUDNN_TYPE_VOID_PTR: return 8;
    default: return 4;
  }
}

// ---- tensors

struct Layout {
  std::array<int64_t, 4> dims{}, strides{};
  int64_t at(const std::array<int64_t, 4>& i) const {
    int64_t offset = 0;
    for (size_t d = 0; d < 4; ++d) offset += i[d] * strides[d];
    return offset;
  }
  int64_t span() const {
    int64_t last = 0;
    for (size_t d = 0; d < 4; ++d) last += (dims[d] - 1) * strides[d];
    return last + 1;
  }
  template <class F>
  void each(F f) const {
    std::array<int64_t, 4> i{};
    for (i[0] = 0; i[0] < dims[0]; ++i[0])
      for (i[1] = 0; i[1] < dims[1]; ++i[1])
        for (i[2] = 0; i[2] < dims[2]; ++i[2])
          for (i[3] = 0; i[3] < dims[3]; ++i[3]) f(i);
  }
};

double round_to(cudnnDataType_t type, double value) {
  const auto as_f32 = static_cast<float>(value);
  switch (type) {
    case CUDNN_DATA_HALF: return f32_from_f16(f16_from_f32(as_f32));
    case CUDNN_DATA_BFLOAT16: return f32_from_bf16(bf16_from_f32(as_f32));
    default: return as_f32;
  }
}

struct Tensor {
  int64_t id;
  cudnnDataType_t type;
  Layout layout;
  bool is_inner, is_value;
};
Tensor tensor_of(const Content& content) {
  Tensor tensor{content.one<int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID),
                content.one<cudnnDataType_t>(CUDNN_ATTR_TENSOR_DATA_TYPE),
                {},
                content.one<char>(CUDNN_ATTR_TENSOR_IS_VIRTUAL) != 0,
                content.one<char>(CUDNN_ATTR_TENSOR_IS_BY_VALUE) != 0};
  std::ranges::copy(content.all<int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS), tensor.layout.dims.begin());
  std::ranges::copy(content.all<int64_t>(CUDNN_ATTR_TENSOR_STRIDES), tensor.layout.strides.begin());
  return tensor;
}

// A run's tensors: inner ones in buffers, others at their bound addresses.
class Run {
 public:
  std::map<int64_t, void*> bound;
  std::map<int64_t, double> scalars;  // read when it is issued

  double get(const Tensor& tensor, int64_t offset) {
    if (tensor.is_value) return scalars.at(tensor.id);
    if (tensor.is_inner) return buffers_.at(tensor.id)[static_cast<size_t>(offset)];
    const void* base = bound.at(tensor.id);
    switch (tensor.type) {
      case CUDNN_DATA_HALF: return f32_from_f16(static_cast<const uint16_t*>(base)[offset]);
      case CUDNN_DATA_BFLOAT16: return f32_from_bf16(static_cast<const uint16_t*>(base)[offset]);
      default: return static_cast<const float*>(base)[offset];
    }
  }
  void put(const Tensor& tensor, int64_t offset, double value) {
    if (tensor.is_inner) {
      std::vector<double>& buffer = buffers_[tensor.id];
      buffer.resize(static_cast<size_t>(tensor.layout.span()), std::numeric_limits<double>::quiet_NaN());
      buffer[static_cast<size_t>(offset)] = round_to(tensor.type, value);
      return;
    }
    void* base = bound.at(tensor.id);
    const auto as_f32 = static_cast<float>(value);
    switch (tensor.type) {
      case CUDNN_DATA_HALF: static_cast<uint16_t*>(base)[offset] = f16_from_f32(as_f32); break;
      case CUDNN_DATA_BFLOAT16: static_cast<uint16_t*>(base)[offset] = bf16_from_f32(as_f32); break;
      default: static_cast<float*>(base)[offset] = as_f32;
    }
  }
  // At an index of another tensor's: dims of 1 are there for all, fewer heads for groups.
  double spread(const Tensor& tensor, std::array<int64_t, 4> i, const Layout& of) {
    for (size_t d = 0; d < 4; ++d) i[d] = i[d] / (of.dims[d] / tensor.layout.dims[d]);
    return get(tensor, tensor.layout.at(i));
  }

 private:
  std::map<int64_t, std::vector<double>> buffers_;
};

// ---- operations

double map(cudnnPointwiseMode_t mode, double x, double b) {
  switch (mode) {
    case CUDNN_POINTWISE_ADD: return x + b;
    case CUDNN_POINTWISE_SUB: return x - b;
    case CUDNN_POINTWISE_MUL: return x * b;
    case CUDNN_POINTWISE_DIV: return x / b;
    case CUDNN_POINTWISE_EXP: return std::exp(x);
    case CUDNN_POINTWISE_LOG: return std::log(x);
    case CUDNN_POINTWISE_CMP_GE: return x >= b;
    default: return std::numeric_limits<double>::quiet_NaN();
  }
}

void pointwise(Run& run, const Content& op) {
  const Content& how = *op.link(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
  const auto mode = how.one<cudnnPointwiseMode_t>(CUDNN_ATTR_POINTWISE_MODE);
  const Tensor x = tensor_of(*op.link(CUDNN_ATTR_OPERATION_POINTWISE_XDESC)),
               y = tensor_of(*op.link(CUDNN_ATTR_OPERATION_POINTWISE_YDESC));
  const auto& b = op.link(CUDNN_ATTR_OPERATION_POINTWISE_BDESC);
  const auto& where = op.link(CUDNN_ATTR_OPERATION_POINTWISE_TDESC);
  const Tensor second = b ? tensor_of(*b) : x, third = where ? tensor_of(*where) : x;
  const auto axis = static_cast<size_t>(how.one<int64_t>(CUDNN_ATTR_POINTWISE_AXIS));
  y.layout.each([&](const std::array<int64_t, 4>& i) {
    double value = 0;
    if (mode == CUDNN_POINTWISE_GEN_INDEX) {
      value = static_cast<double>(i[axis]);
    } else if (mode == CUDNN_POINTWISE_BINARY_SELECT) {
      value = run.spread(run.spread(third, i, y.layout) != 0 ? x : second, i, y.layout);
    } else {
      value = map(mode, run.spread(x, i, y.layout), b ? run.spread(second, i, y.layout) : 0);
    }
    run.put(y, y.layout.at(i), value);
  });
}

void matmul(Run& run, const Content& op) {
  const Tensor a = tensor_of(*op.link(CUDNN_ATTR_OPERATION_MATMUL_ADESC)),
               b = tensor_of(*op.link(CUDNN_ATTR_OPERATION_MATMUL_BDESC)),
               c = tensor_of(*op.link(CUDNN_ATTR_OPERATION_MATMUL_CDESC));
  const int64_t inner = a.layout.dims[3];
  Layout left = c.layout, right = c.layout;  // what indices of a and b count against
  left.dims[3] = inner;
  right.dims[2] = inner;
  c.layout.each([&](const std::array<int64_t, 4>& i) {
    float sum = 0;
    for (int64_t k = 0; k < inner; ++k)
      sum += static_cast<float>(run.spread(a, {i[0], i[1], i[2], k}, left) *
                                run.spread(b, {i[0], i[1], k, i[3]}, right));
    run.put(c, c.layout.at(i), sum);
  });
}

void reduction(Run& run, const Content& op) {
  const auto kind =
      op.link(CUDNN_ATTR_OPERATION_REDUCTION_DESC)->one<cudnnReduceTensorOp_t>(CUDNN_ATTR_REDUCTION_OPERATOR);
  const Tensor x = tensor_of(*op.link(CUDNN_ATTR_OPERATION_REDUCTION_XDESC)),
               y = tensor_of(*op.link(CUDNN_ATTR_OPERATION_REDUCTION_YDESC));
  const bool is_max = kind == CUDNN_REDUCE_TENSOR_MAX;
  std::vector<double> values(static_cast<size_t>(y.layout.span()),
                             is_max ? -std::numeric_limits<double>::infinity() : 0);
  x.layout.each([&](std::array<int64_t, 4> i) {
    const double value = run.get(x, x.layout.at(i));
    for (size_t d = 0; d < 4; ++d) i[d] = i[d] / (x.layout.dims[d] / y.layout.dims[d]);
    double& into = values[static_cast<size_t>(y.layout.at(i))];
    into = is_max ? std::max(into, value) : into + value;
  });
  y.layout.each([&](const std::array<int64_t, 4>& i) {
    run.put(y, y.layout.at(i), values[static_cast<size_t>(y.layout.at(i))]);
  });
}

// The same memory, seen with other dims.
void reshape(Run& run, const Content& op) {
  const Tensor x = tensor_of(*op.link(CUDNN_ATTR_OPERATION_RESHAPE_XDESC)),
               y = tensor_of(*op.link(CUDNN_ATTR_OPERATION_RESHAPE_YDESC));
  y.layout.each(
      [&](const std::array<int64_t, 4>& i) { run.put(y, y.layout.at(i), run.get(x, y.layout.at(i))); });
}

std::vector<std::shared_ptr<Content>> tensors_of(const Content& op) {
  std::vector<std::shared_ptr<Content>> found;
  for (const auto& [name, contents] : op.links)
    for (const auto& content : contents)
      if (content->type == CUDNN_BACKEND_TENSOR_DESCRIPTOR) found.push_back(content);
  return found;
}

const std::vector<std::shared_ptr<Content>>& operations_of(const Content& graph) {
  return graph.links.at(CUDNN_ATTR_OPERATIONGRAPH_OPS);
}

// The workspace of a flash attention: almost none, or the scores of a gradient.
int64_t workspace_of(const Content& graph) {
  int64_t bytes = 256;
  for (const auto& op : operations_of(graph))
    if (op->type == CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR) {
      const Tensor y = tensor_of(*op->link(CUDNN_ATTR_OPERATION_RESHAPE_YDESC));
      // Large enough for two sequences to be too many.
      const int64_t more = told_to("large") ? y.layout.dims[0] * (int64_t{300} << 20) : 0;
      bytes = std::max(bytes, 256 + more + 2 * y.layout.span());
    }
  return bytes;
}

// ---- the interface

// The heuristic's first is one that sums in any order; the second has a setting.
constexpr int64_t kUnordered = 3, kOrdered = 4;
std::shared_ptr<Content> engine(const std::shared_ptr<Content>& graph, int64_t index) {
  auto made = std::make_shared<Content>(Content{CUDNN_BACKEND_ENGINE_DESCRIPTOR, true, {}, {}});
  made->links[CUDNN_ATTR_ENGINE_OPERATION_GRAPH] = {graph};
  made->values[CUDNN_ATTR_ENGINE_GLOBAL_INDEX].resize(8);
  std::memcpy(made->values[CUDNN_ATTR_ENGINE_GLOBAL_INDEX].data(), &index, 8);
  return made;
}

cudnnStatus_t create_descriptor(cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t* out) {
  *out = new Descriptor{std::make_shared<Content>(Content{type, false, {}, {}})};
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t destroy_descriptor(cudnnBackendDescriptor_t descriptor) {
  delete static_cast<Descriptor*>(descriptor);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t set_attribute(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                            cudnnBackendAttributeType_t type, int64_t count, const void* values) {
  if (descriptor == nullptr || values == nullptr || count < 1) return bad("nothing to set");
  Content& content = content_of(descriptor);
  if (content.finished) return bad("it is finished");
  if (type != CUDNN_TYPE_BACKEND_DESCRIPTOR) {
    const char* bytes = static_cast<const char*>(values);
    content.values[name].assign(bytes, bytes + static_cast<size_t>(count) * size_of(type));
    return CUDNN_STATUS_SUCCESS;
  }
  content.links[name].clear();
  for (int64_t i = 0; i < count; ++i) {
    const auto other = static_cast<const cudnnBackendDescriptor_t*>(values)[i];
    if (other == nullptr || !content_of(other).finished) return bad("what it names is not finished");
    content.links[name].push_back(static_cast<Descriptor*>(other)->content);
  }
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t finalize(cudnnBackendDescriptor_t descriptor) {
  Content& content = content_of(descriptor);
  if (content.type == CUDNN_BACKEND_TENSOR_DESCRIPTOR) {
    const Tensor tensor = tensor_of(content);
    if (tensor.id == 0 || tensor.layout.dims[3] < 1) return bad("a tensor without a name or extents");
  }
  if (content.type == CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR) {
    const Tensor a = tensor_of(*content.link(CUDNN_ATTR_OPERATION_MATMUL_ADESC)),
                 b = tensor_of(*content.link(CUDNN_ATTR_OPERATION_MATMUL_BDESC)),
                 c = tensor_of(*content.link(CUDNN_ATTR_OPERATION_MATMUL_CDESC));
    if (a.layout.dims[3] != b.layout.dims[2] || a.layout.dims[2] != c.layout.dims[2] ||
        b.layout.dims[3] != c.layout.dims[3])
      return bad("a product of extents that do not fit");
  }
  if (content.type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR) emulator::note_work();
  content.finished = true;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t get_attribute(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                            cudnnBackendAttributeType_t type, int64_t most, int64_t* count, void* values) {
  const std::shared_ptr<Content>& content = static_cast<Descriptor*>(descriptor)->content;
  if (!content->finished) return bad("it is not finished", CUDNN_STATUS_NOT_INITIALIZED);
  const auto give = [&](std::vector<std::shared_ptr<Content>> found) {
    *count = static_cast<int64_t>(found.size());
    for (int64_t i = 0; i < std::min(most, *count); ++i)
      static_cast<Descriptor*>(static_cast<cudnnBackendDescriptor_t*>(values)[i])->content =
          found[static_cast<size_t>(i)];
    return CUDNN_STATUS_SUCCESS;
  };
  const auto give_number = [&](int64_t number) {
    *count = 1;
    std::memcpy(values, &number, size_of(type));
    return CUDNN_STATUS_SUCCESS;
  };
  switch (name) {
    case CUDNN_ATTR_ENGINEHEUR_RESULTS: {
      std::vector<std::shared_ptr<Content>> found;
      for (const int64_t index : {kUnordered, kOrdered}) {
        if (told_to("refuses")) break;
        auto one = std::make_shared<Content>(Content{CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, true, {}, {}});
        one->links[CUDNN_ATTR_ENGINECFG_ENGINE] = {
            engine(content->link(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH), index)};
        auto knob = std::make_shared<Content>(Content{CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, true, {}, {}});
        const int type_of_knob = CUDNN_KNOB_TYPE_KERNEL_CFG;
        const int64_t setting = 26;
        knob->values[CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE].assign(4, 0);
        std::memcpy(knob->values[CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE].data(), &type_of_knob, 4);
        knob->values[CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE].assign(8, 0);
        std::memcpy(knob->values[CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE].data(), &setting, 8);
        one->links[CUDNN_ATTR_ENGINECFG_KNOB_CHOICES] = {knob};
        found.push_back(one);
      }
      // More than there are, when asked for their number alone.
      if (most == 0) return *count = static_cast<int64_t>(found.size()) + 1, CUDNN_STATUS_SUCCESS;
      return give(std::move(found));
    }
    case CUDNN_ATTR_ENGINE_NUMERICAL_NOTE: {
      *count = 1;
      const bool is_ordered = content->one<int64_t>(CUDNN_ATTR_ENGINE_GLOBAL_INDEX) == kOrdered;
      *static_cast<cudnnBackendNumericalNote_t*>(values) =
          is_ordered ? CUDNN_NUMERICAL_NOTE_TENSOR_CORE : CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC;
      return CUDNN_STATUS_SUCCESS;
    }
    case CUDNN_ATTR_ENGINECFG_WORKSPACE_SIZE:
      return give_number(
          workspace_of(*content->link(CUDNN_ATTR_ENGINECFG_ENGINE)->link(CUDNN_ATTR_ENGINE_OPERATION_GRAPH)));
    case CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE:
      return give_number(workspace_of(*content->link(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG)
                                           ->link(CUDNN_ATTR_ENGINECFG_ENGINE)
                                           ->link(CUDNN_ATTR_ENGINE_OPERATION_GRAPH)));
    default: break;
  }
  if (const auto found = content->links.find(name); found != content->links.end()) return give(found->second);
  const auto found = content->values.find(name);
  if (found == content->values.end()) return *count = 0, CUDNN_STATUS_SUCCESS;
  *count = static_cast<int64_t>(found->second.size() / size_of(type));
  std::memcpy(values, found->second.data(), static_cast<size_t>(std::min(most, *count)) * size_of(type));
  return CUDNN_STATUS_SUCCESS;
}

struct Handle {
  cudaStream_t stream = nullptr;
};

cudnnStatus_t execute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan, cudnnBackendDescriptor_t pack) {
  if (told_to("fails")) return bad("told to fail", CUDNN_STATUS_EXECUTION_FAILED);
  if (plan == nullptr || !content_of(plan).finished || !content_of(pack).finished)
    return bad("a plan or operands that are not finished");
  const std::shared_ptr<Content> graph = content_of(plan)
                                             .link(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG)
                                             ->link(CUDNN_ATTR_ENGINECFG_ENGINE)
                                             ->link(CUDNN_ATTR_ENGINE_OPERATION_GRAPH);
  auto run = std::make_shared<Run>();
  const auto ids = content_of(pack).all<int64_t>(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
  const auto addresses = content_of(pack).all<void*>(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
  if (ids.size() != addresses.size()) return bad("as many names as addresses");
  for (size_t i = 0; i < ids.size(); ++i) run->bound[ids[i]] = addresses[i];
  size_t used = 0;
  std::map<int64_t, bool> seen;
  for (const auto& op : operations_of(*graph))
    for (const auto& content : tensors_of(*op)) {
      const Tensor tensor = tensor_of(*content);
      if (tensor.is_inner || std::exchange(seen[tensor.id], true)) continue;
      if (!run->bound.contains(tensor.id)) return bad("a tensor is not bound");
      ++used;
      void* at = run->bound[tensor.id];
      if (tensor.is_value) {
        run->scalars[tensor.id] = *static_cast<const float*>(at);
      } else if (reinterpret_cast<uintptr_t>(at) % 16 != 0) {
        return bad("an address at no multiple of 16");
      }
    }
  if (used != ids.size()) return bad("a name that the graph does not have");
  auto* workspace = content_of(pack).one<char*>(CUDNN_ATTR_VARIANT_PACK_WORKSPACE);
  if (reinterpret_cast<uintptr_t>(workspace) % 256 != 0) return bad("a workspace at no multiple of 256");
  static int runs = 0;
  const bool wrong = told_to("wrong"), otherwise = told_to("unordered") && ++runs % 2 == 0;
  emulator::enqueue_work(reinterpret_cast<Handle*>(handle)->stream, [=] {
    // It is all the plan's.
    std::memset(workspace, 0xff, static_cast<size_t>(std::min<int64_t>(workspace_of(*graph), 1 << 20)));
    for (const auto& op : operations_of(*graph)) switch (op->type) {
        case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR: pointwise(*run, *op); break;
        case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR: matmul(*run, *op); break;
        case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR: reduction(*run, *op); break;
        case CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR: reshape(*run, *op); break;
        default: break;
      }
    const auto& last = operations_of(*graph).back();
    if ((!wrong && !otherwise) || last->type != CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR) return;
    const Tensor result = tensor_of(*last->link(CUDNN_ATTR_OPERATION_MATMUL_CDESC));
    const int64_t end = result.layout.span() - 1;
    const double ulp = result.type == CUDNN_DATA_BFLOAT16 ? 0x1p-7 : 0x1p-10;
    run->put(result, end, run->get(result, end) * (otherwise ? 1 + ulp : 1) + (wrong ? 1 : 0));
  });
  return CUDNN_STATUS_SUCCESS;
}

Dnn make() {
  Dnn api{};
  api.version = []() -> size_t { return 91900; };
  api.last_error = [](char* text, size_t bytes) { std::strncpy(text, t_error, bytes - 1); };
  api.create = [](cudnnHandle_t* out) {
    *out = reinterpret_cast<cudnnHandle_t>(new Handle);
    return CUDNN_STATUS_SUCCESS;
  };
  api.set_stream = [](cudnnHandle_t handle, cudaStream_t stream) {
    reinterpret_cast<Handle*>(handle)->stream = stream;
    return CUDNN_STATUS_SUCCESS;
  };
  api.create_descriptor = create_descriptor;
  api.destroy_descriptor = destroy_descriptor;
  api.set_attribute = set_attribute;
  api.get_attribute = get_attribute;
  api.finalize = finalize;
  api.execute = execute;
  return api;
}

}  // namespace

Result<const Dnn*> dnn() {
  if (told_to("missing")) return Status(StatusCode::kUnsupported, "cuDNN: told to be missing");
  static const Dnn api = make();
  return &api;
}

Status Dnn::status(cudnnStatus_t status, std::string_view what) const {
  if (status == CUDNN_STATUS_SUCCESS) return {};
  return Status(StatusCode::kUnsupported,
                format("cuDNN answers {} to {}: {}", static_cast<int32_t>(status), what, t_error));
}

}  // namespace tessera::cuda
