// Structs between a program and a library of different versions: the shorter size is copied, both ways.
#include "capi/public_structs.h"

#include <cstring>
#include <string>

#include "c_api.h"
#include "small_training.h"

using namespace capi_test;

namespace {

// A struct that has grown by `second` since version 1, as an older, the present and a newer header have it.
struct OlderRange {
  size_t struct_size;
  int64_t first;
};
struct Range {
  size_t struct_size;
  int64_t first, second;
};
struct NewerRange {
  size_t struct_size;
  int64_t first, second, third;
};

}  // namespace

template <>
struct tessera::capi::PublicStruct<Range> {
  static constexpr const char* kName = "tsr_range";
  static constexpr size_t kFirstSize = sizeof(OlderRange);
};

using tessera::capi::check_struct;
using tessera::capi::copy_struct;

TEST_CASE("a struct of an older program lacks the newer members, which are 0 and are not written") {
  struct {
    OlderRange range;
    int64_t after;
  } caller = {{sizeof(OlderRange), 7}, 99};
  const auto read = copy_struct<Range>(&caller.range);
  REQUIRE(read.ok());
  CHECK(read->first == 7);
  CHECK(read->second == 0);
  auto* out = reinterpret_cast<Range*>(&caller.range);
  REQUIRE(check_struct(out).ok());
  copy_struct({sizeof(Range), 1, 2}, out);
  CHECK(caller.range.struct_size == sizeof(OlderRange));
  CHECK(caller.range.first == 1);
  CHECK(caller.after == 99);
}

TEST_CASE(
    "a struct of a newer program is taken while its unknown members are 0, which keep their values when "
    "filled") {
  NewerRange caller = {sizeof(NewerRange), 7, 8, 0};
  const auto read = copy_struct<Range>(&caller);
  REQUIRE(read.ok());
  CHECK(read->second == 8);
  caller.third = 5;
  const tessera::Status refused = copy_struct<Range>(&caller).status();
  CHECK(refused.code() == tessera::StatusCode::kUnsupported);
  CHECK(refused.message() ==
        "tsr_range of 32 bytes sets byte 24; this library knows the first 24: leave newer members "
        "0, or use a newer library");
  copy_struct({sizeof(Range), 1, 2}, reinterpret_cast<Range*>(&caller));
  CHECK(caller.struct_size == sizeof(NewerRange));
  CHECK(caller.second == 2);
  CHECK(caller.third == 5);
}

TEST_CASE(
    "steps and pieces of a newer program are filled, and sizes that no version has are refused by name") {
  const Runtime rt = runtime();
  const Model model = described_with_bytes("llama:L=1,C=16,H=2,F=16,V=256,T=32", 1);
  tsr_trainer* made = nullptr;
  ok(tsr_trainer_new(rt.get(), model.get(), bytes_dataset().get(), options({{"batch", int64_t{2}}}).get(),
                     &made));
  const Trainer trainer(made);
  struct {
    tsr_step known;
    double newer[3];
  } step = {};
  step.known.struct_size = sizeof step;
  step.newer[1] = 5;
  ok(tsr_trainer_step(trainer.get(), &step.known));
  CHECK(step.known.struct_size == sizeof step);
  CHECK(step.known.step == 1);
  CHECK(step.newer[1] == 5);
  for (const size_t wrong : {size_t{0}, size_t{47}, size_t{4097}, SIZE_MAX}) {
    step.known.struct_size = wrong;
    const Error refused = take(tsr_trainer_step(trainer.get(), &step.known));
    CHECK(refused.code == TSR_INVALID_ARGUMENT);
    CHECK(refused.message == "tsr_step.struct_size is " + std::to_string(wrong) +
                                 ", wanted sizeof(tsr_step), which is 48 to 4096");
  }
  step.known.struct_size = sizeof step;
  ok(tsr_trainer_step(trainer.get(), &step.known));
  CHECK(step.known.step == 2);  // what was refused was no step
}

TEST_CASE("readers and entries of a newer program are taken while their unknown members are 0") {
  const Scratch scratch;
  int released = 0;
  struct {
    tsr_reader known;
    int64_t newer;
  } reader = {};
  reader.known.struct_size = sizeof reader;
  reader.known.context = &released;
  reader.known.size = 3;
  reader.known.read_at = [](void*, int64_t, void* out, size_t count) -> int32_t {
    std::memcpy(out, "abc", count);
    return 0;
  };
  reader.known.release = [](void* context) { ++*static_cast<int*>(context); };
  tsr_model* model = nullptr;
  CHECK(take(tsr_model_load_reader(&reader.known, &model)).code == TSR_CORRUPT);  // it was read
  CHECK(released == 1);
  reader.newer = 1;
  const Error refused = take(tsr_model_load_reader(&reader.known, &model));
  CHECK(refused.code == TSR_UNSUPPORTED);
  CHECK(refused.message.find("tsr_reader of 48 bytes") != std::string::npos);
  CHECK(released == 2);

  const Runtime rt = runtime();
  tsr_devices* devices_raw = nullptr;
  ok(tsr_devices_open(rt.get(), "cpu:1", &devices_raw));
  const Devices devices(devices_raw);
  const Graph graph = mlp_graph();
  tsr_plan* plan_raw = nullptr;
  ok(tsr_plan_new_for_graph(devices_raw, graph.get(), nullptr, &plan_raw));
  const Plan plan(plan_raw);
  struct Entry {
    tsr_entry known;
    int64_t newer;
  } entries[2] = {{{sizeof(Entry), "one", graph.get(), plan_raw}, 0},
                  {{sizeof(Entry), "two", graph.get(), plan_raw}, 0}};
  tsr_program* program = nullptr;
  ok(tsr_program_new(devices_raw, &entries[0].known, 2, &program));
  tsr_program_free(program);
  entries[1].newer = 1;
  CHECK(take(tsr_program_new(devices_raw, &entries[0].known, 2, &program)).code == TSR_UNSUPPORTED);
}
