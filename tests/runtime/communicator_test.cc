// Every collective against the plainest possible computation on whole tensors.
#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>

#include "graph/program.h"
#include "test_devices.h"

namespace tessera {
namespace {

using test::Ring;

tsr_abi_collective describe(CollectiveKind kind, int32_t members, int64_t elements,
                            DType dtype = DType::kF32) {
  tsr_abi_collective what{};
  what.struct_size = sizeof(what);
  what.kind = static_cast<int32_t>(kind);
  what.dtype = static_cast<int32_t>(dtype);
  what.in_split_first = 1;
  what.member_count = members;
  what.outer = what.middle = what.inner = 1;
  what.elements = elements;
  return what;
}

Status call(Ring& ring, int32_t member, const tsr_abi_collective& what, const void* in, void* out) {
  return ring.collective(member, what, in, out);
}

int64_t total(const std::vector<int64_t>& values) {
  return std::accumulate(values.begin(), values.end(), int64_t{0});
}

int64_t counted_bytes(Ring& ring, int32_t members, CollectiveKind kind, int64_t expected_calls) {
  int64_t bytes = 0;
  for (int32_t i = 0; i < members; ++i) {
    tsr_abi_comm_counters counters{};
    counters.struct_size = sizeof(counters);
    ring.api().comm_counters(ring.comm(i), &counters);
    CHECK(counters.calls[static_cast<size_t>(kind)] == expected_calls);
    bytes += counters.bytes[static_cast<size_t>(kind)];
  }
  return bytes;
}

std::vector<float> random_values(int64_t count, uint32_t seed) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = normal(engine);
  return values;
}

void check_ok(const std::vector<Status>& statuses) {
  for (const Status& status : statuses) CHECK_MESSAGE(status.ok(), status.to_string());
}

// Even, uneven and empty shards of one dim.
std::vector<std::vector<int64_t>> splits(int32_t members) {
  std::vector<int64_t> even(static_cast<size_t>(members), 4), uneven, holes;
  for (int32_t i = 0; i < members; ++i) {
    uneven.push_back(i < members / 2 + 1 ? 5 : 4);
    holes.push_back(i % 2 == 1 ? 0 : 3);
  }
  return {even, uneven, holes};
}

// `expected` is added up in group order; `sizes` are the sums of the addends' sizes.
void check_sums(const Ring& ring, const std::vector<float>& result, const std::vector<float>& expected,
                const std::vector<float>& sizes, int32_t members) {
  if (ring.adds_in_group_order()) {
    CHECK(result == expected);
    return;
  }
  REQUIRE(result.size() == expected.size());
  // Either order rounds after every addition.
  const auto is_off = [&](size_t i) {
    return !(std::fabs(result[i] - expected[i]) <= 2 * static_cast<float>(members - 1) * 0x1p-24f * sizes[i]);
  };
  size_t wrong = 0;
  for (size_t i = 0; i < result.size(); ++i) wrong += is_off(i);
  CHECK(wrong == 0);
}

TEST_CASE("all_reduce_adds_with_the_same_bits_on_every_member_in_group_order_without_nccl") {
  for (int32_t members = 1; members <= 6; ++members) {
    for (const int64_t elements : {int64_t{0}, int64_t{1}, int64_t{7}, int64_t{1000}, int64_t{200000}}) {
      Ring ring(members);
      std::vector<std::vector<float>> in, out;
      for (int32_t i = 0; i < members; ++i)
        in.push_back(random_values(elements, 17u + static_cast<uint32_t>(i)));
      std::vector<float> expected = in[0], sizes(expected.size());
      for (size_t e = 0; e < expected.size(); ++e)
        for (size_t i = 0; i < in.size(); ++i) {
          if (i > 0) expected[e] += in[i][e];
          sizes[e] += std::fabs(in[i][e]);
        }
      out.assign(static_cast<size_t>(members), std::vector<float>(static_cast<size_t>(elements)));
      const auto what = describe(CollectiveKind::kAllReduce, members, elements);
      check_ok(ring.on_all([&](int32_t i) {
        return call(ring, i, what, in[static_cast<size_t>(i)].data(), out[static_cast<size_t>(i)].data());
      }));
      check_sums(ring, out[0], expected, sizes, members);
      for (const auto& result : out) CHECK(result == out[0]);
      // Also in place.
      check_ok(ring.on_all([&](int32_t i) {
        return call(ring, i, what, in[static_cast<size_t>(i)].data(), in[static_cast<size_t>(i)].data());
      }));
      for (const auto& result : in) CHECK(result == out[0]);
      CHECK(counted_bytes(ring, members, CollectiveKind::kAllReduce, 2) ==
            2 * 2 * (members - 1) * elements * 4);
    }
  }
}

template <class T>
void check_all_reduce(DType dtype, ReduceKind reduce, const std::vector<std::vector<T>>& in,
                      const std::vector<T>& expected) {
  const auto members = static_cast<int32_t>(in.size());
  Ring ring(members);
  auto what = describe(CollectiveKind::kAllReduce, members, static_cast<int64_t>(in[0].size()), dtype);
  what.reduce = static_cast<int32_t>(reduce);
  auto out = in;
  check_ok(ring.on_all([&](int32_t i) {
    return call(ring, i, what, in[static_cast<size_t>(i)].data(), out[static_cast<size_t>(i)].data());
  }));
  for (const auto& result : out) CHECK(result == expected);
}

TEST_CASE("all_reduce_knows_its_element_types_and_the_maximum") {
  check_all_reduce<double>(DType::kF64, ReduceKind::kSum, {{1e300, 1}, {1e-3, 2}, {5, 3}},
                           {1e300 + 1e-3 + 5, 6});
  check_all_reduce<int32_t>(DType::kI32, ReduceKind::kSum, {{1, -5}, {INT32_MAX, 2}}, {INT32_MIN, -3});
  check_all_reduce<int64_t>(DType::kI64, ReduceKind::kMax, {{1, -5}, {int64_t{1} << 40, -7}},
                            {int64_t{1} << 40, -5});
  check_all_reduce<float>(DType::kF32, ReduceKind::kMax, {{1, -5}, {0, -7}, {2, -9}}, {2, -5});
  // bf16: 1 + 2^-8 + 2^-8 is 1 + 2^-7 when it is rounded once at the end, and 1 when rounded after each
  // addend.
  if (Ring(3).adds_in_group_order())
    check_all_reduce<uint16_t>(DType::kBF16, ReduceKind::kSum, {{0x3f80}, {0x3b80}, {0x3b80}}, {0x3f81});
  // f16: 1.5 + 2.25 = 3.75; the smallest subnormal twice; overflow to infinity.
  check_all_reduce<uint16_t>(DType::kF16, ReduceKind::kSum,
                             {{0x3e00, 0x0001, 0x7bff}, {0x4080, 0x0001, 0x7bff}}, {0x4380, 0x0002, 0x7c00});
  Ring ring(2);
  auto what = describe(CollectiveKind::kAllReduce, 2, 1, DType::kU8);
  char byte = 0;
  for (const Status& status : ring.on_all([&](int32_t i) { return call(ring, i, what, &byte, &byte); })) {
    CHECK(status.code() == StatusCode::kUnsupported);
    CHECK(status.message() == "collective: no reduction 0 of u8");
  }
}

TEST_CASE("all_gather_puts_every_piece_in_its_place") {
  for (int32_t members = 1; members <= 6; ++members) {
    for (const auto& extents : splits(members)) {
      for (const auto& [outer, inner] : {std::pair{1, 6}, {3, 1}, {2, 5}, {0, 4}}) {
        Ring ring(members);
        const int64_t whole = total(extents);
        const int64_t elements = outer * whole * inner;
        const std::vector<float> expected = random_values(elements, 3);
        std::vector<std::vector<float>> in(extents.size());
        int64_t begin = 0;
        for (size_t m = 0; m < extents.size(); begin += extents[m++])
          for (int64_t o = 0; o < outer; ++o)
            for (int64_t k = begin; k < begin + extents[m]; ++k)
              for (int64_t i = 0; i < inner; ++i)
                in[m].push_back(expected[static_cast<size_t>((o * whole + k) * inner + i)]);
        auto what = describe(CollectiveKind::kAllGather, members, elements);
        what.outer = outer;
        what.inner = inner;
        what.extents = extents.data();
        std::vector<std::vector<float>> out(extents.size(),
                                            std::vector<float>(static_cast<size_t>(elements)));
        check_ok(ring.on_all([&](int32_t i) {
          return call(ring, i, what, in[static_cast<size_t>(i)].data(), out[static_cast<size_t>(i)].data());
        }));
        for (const auto& result : out) CHECK(result == expected);
        CHECK(counted_bytes(ring, members, CollectiveKind::kAllGather, 1) == (members - 1) * elements * 4);
      }
    }
  }
}

TEST_CASE("reduce_scatter_leaves_each_member_its_reduced_piece") {
  for (int32_t members = 1; members <= 6; ++members) {
    for (const auto& extents : splits(members)) {
      for (const auto& [outer, inner] : {std::pair{1, 6}, {3, 1}, {2, 5}}) {
        Ring ring(members);
        const int64_t whole = total(extents);
        const int64_t elements = outer * whole * inner;
        std::vector<std::vector<float>> in, out(extents.size());
        for (int32_t m = 0; m < members; ++m)
          in.push_back(random_values(elements, 90u + static_cast<uint32_t>(m)));
        for (size_t m = 0; m < extents.size(); ++m)
          out[m].resize(static_cast<size_t>(outer * extents[m] * inner));
        auto what = describe(CollectiveKind::kReduceScatter, members, elements);
        what.outer = outer;
        what.inner = inner;
        what.extents = extents.data();
        check_ok(ring.on_all([&](int32_t i) {
          return call(ring, i, what, in[static_cast<size_t>(i)].data(), out[static_cast<size_t>(i)].data());
        }));
        int64_t begin = 0;
        for (size_t m = 0; m < extents.size(); begin += extents[m++]) {
          std::vector<float> expected, sizes;
          for (int64_t o = 0; o < outer; ++o)
            for (int64_t k = begin; k < begin + extents[m]; ++k)
              for (int64_t i = 0; i < inner; ++i) {
                const auto at = static_cast<size_t>((o * whole + k) * inner + i);
                float sum = in[0][at], size = std::fabs(sum);
                for (size_t other = 1; other < in.size(); ++other) {
                  sum += in[other][at];
                  size += std::fabs(in[other][at]);
                }
                expected.push_back(sum);
                sizes.push_back(size);
              }
          check_sums(ring, out[m], expected, sizes, members);
        }
        CHECK(counted_bytes(ring, members, CollectiveKind::kReduceScatter, 1) ==
              (members - 1) * elements * 4);
      }
    }
  }
}

// The piece of a tensor [outer, d0, middle, d1, inner] with d0 in [a0, b0) and d1 in [a1, b1).
std::vector<int64_t> block(int64_t outer, int64_t d0, int64_t middle, int64_t d1, int64_t inner, int64_t a0,
                           int64_t b0, int64_t a1, int64_t b1) {
  std::vector<int64_t> values;
  for (int64_t o = 0; o < outer; ++o)
    for (int64_t i = a0; i < b0; ++i)
      for (int64_t m = 0; m < middle; ++m)
        for (int64_t j = a1; j < b1; ++j)
          for (int64_t k = 0; k < inner; ++k)
            values.push_back((((o * d0 + i) * middle + m) * d1 + j) * inner + k);
  return values;
}

TEST_CASE("all_to_all_swaps_which_of_two_dims_is_split") {
  for (int32_t members = 1; members <= 6; ++members) {
    for (const auto& from : splits(members)) {
      for (const auto& to : splits(members)) {
        for (const bool in_split_first : {true, false}) {
          Ring ring(members);
          const int64_t outer = 2, middle = 3, inner = 2;
          const int64_t d0 = total(in_split_first ? from : to), d1 = total(in_split_first ? to : from);
          const int64_t elements = outer * d0 * middle * d1 * inner;
          std::vector<std::vector<int64_t>> in, expected, out;
          int64_t from_at = 0, to_at = 0, leaving = 0;
          for (size_t m = 0; m < from.size(); ++m) {
            const int64_t from_end = from_at + from[m], to_end = to_at + to[m];
            in.push_back(in_split_first ? block(outer, d0, middle, d1, inner, from_at, from_end, 0, d1)
                                        : block(outer, d0, middle, d1, inner, 0, d0, from_at, from_end));
            expected.push_back(in_split_first ? block(outer, d0, middle, d1, inner, 0, d0, to_at, to_end)
                                              : block(outer, d0, middle, d1, inner, to_at, to_end, 0, d1));
            out.emplace_back(expected.back().size(), -1);
            leaving += outer * middle * inner * from[m] * (total(to) - to[m]);
            from_at = from_end;
            to_at = to_end;
          }
          auto what = describe(CollectiveKind::kAllToAll, members, elements, DType::kI64);
          what.outer = outer;
          what.middle = middle;
          what.inner = inner;
          what.extents = from.data();
          what.extents2 = to.data();
          what.in_split_first = in_split_first;
          check_ok(ring.on_all([&](int32_t i) {
            return call(ring, i, what, in[static_cast<size_t>(i)].data(), out[static_cast<size_t>(i)].data());
          }));
          CHECK(out == expected);
          CHECK(counted_bytes(ring, members, CollectiveKind::kAllToAll, 1) == leaving * 8);
          if (from == to && from == splits(members)[0])
            CHECK(leaving * 8 == elements * 8 * (members - 1) / members);  // DESIGN: (P-1)/P S when even
        }
      }
    }
  }
}

TEST_CASE("broadcast_copies_the_root_to_all") {
  for (int32_t members = 1; members <= 5; ++members) {
    for (int32_t root = 0; root < members; ++root) {
      Ring ring(members);
      const std::vector<float> value = random_values(33, 5);
      std::vector<std::vector<float>> out(static_cast<size_t>(members), std::vector<float>(33));
      auto what = describe(CollectiveKind::kBroadcast, members, 33);
      what.root = root;
      check_ok(ring.on_all([&](int32_t i) {
        return call(ring, i, what, i == root ? value.data() : nullptr, out[static_cast<size_t>(i)].data());
      }));
      for (const auto& result : out) CHECK(result == value);
      CHECK(counted_bytes(ring, members, CollectiveKind::kBroadcast, 1) == (members - 1) * 33 * 4);
    }
  }
}

TEST_CASE("send_and_recv_carry_bytes_in_order") {
  Ring ring(3);
  std::vector<int32_t> received;
  check_ok(ring.on_all([&](int32_t i) -> Status {
    for (int32_t round = 0; round < 100; ++round) {
      int32_t value = round * 10 + i;
      if (i > 0)
        TSR_RETURN_IF_ERROR(take_error(ring.api().comm_recv(ring.comm(i), ring.stream(i), i - 1, &value, 4)));
      if (i < 2)
        TSR_RETURN_IF_ERROR(take_error(ring.api().comm_send(ring.comm(i), ring.stream(i), i + 1, &value, 4)));
      TSR_RETURN_IF_ERROR(take_error(ring.api().stream_synchronize(ring.stream(i))));
      if (i == 2) received.push_back(value);
    }
    return {};
  }));
  for (int32_t round = 0; round < 100; ++round) CHECK(received[static_cast<size_t>(round)] == round * 10);
}

TEST_CASE("an_abort_wakes_every_waiter_and_closes_the_group") {
  Ring ring(4);
  std::vector<float> data(64);
  const auto what = describe(CollectiveKind::kAllReduce, 4, 64);
  const auto statuses = ring.on_all([&](int32_t i) -> Status {
    if (i == 2) {  // never comes to the barrier
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      ring.api().comm_abort(ring.comm(2));
      return {};
    }
    if (i == 3) return take_error(ring.api().comm_recv(ring.comm(3), ring.stream(3), 2, data.data(), 4));
    return call(ring, i, what, data.data(), data.data());
  });
  for (const int32_t i : {0, 1, 3}) CHECK(statuses[static_cast<size_t>(i)].code() == StatusCode::kAborted);
  CHECK(call(ring, 2, what, data.data(), data.data()).code() == StatusCode::kAborted);
}

TEST_CASE("an_abort_ends_a_collective_that_members_agreed_on_before") {
  Ring ring(3);
  std::vector<float> data(size_t{3} * 64);
  const auto what = describe(CollectiveKind::kAllReduce, 3, 64);
  const auto once = [&](int32_t i) {
    float* mine = data.data() + size_t{64} * static_cast<size_t>(i);
    return call(ring, i, what, mine, mine);
  };
  check_ok(ring.on_all(once));
  // Two may have issued it, and wait on their devices alone: what they say of it is no matter.
  (void)ring.on_all([&](int32_t i) -> Status {
    if (i < 2) return once(i);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    ring.api().comm_abort(ring.comm(2));
    return {};
  });
  for (int32_t i = 0; i < 3; ++i) CHECK(once(i).code() == StatusCode::kAborted);
}

TEST_CASE("members_that_disagree_all_get_the_error") {
  Ring ring(3);
  std::vector<float> data(64);
  const auto what = describe(CollectiveKind::kAllReduce, 3, 64),
             other = describe(CollectiveKind::kAllReduce, 3, 63);
  for (const Status& status : ring.on_all(
           [&](int32_t i) { return call(ring, i, i == 1 ? other : what, data.data(), data.data()); })) {
    CHECK(status.code() == StatusCode::kInternal);
    CHECK(status.message().find("disagree") != std::string_view::npos);
  }
}

TEST_CASE("many_rounds_with_more_members_than_cores_stay_in_step") {
  Ring ring(6, 2);
  const auto what = describe(CollectiveKind::kAllReduce, 6, 5, DType::kI64);
  check_ok(ring.on_all([&](int32_t i) -> Status {
    for (int64_t round = 0; round < 2000; ++round) {
      int64_t data[5] = {round, i, 1, 0, -round};
      TSR_RETURN_IF_ERROR(call(ring, i, what, data, data));
      const int64_t expected[5] = {6 * round, 15, 6, 0, -6 * round};
      if (std::memcmp(data, expected, sizeof(data)) != 0) return Status(StatusCode::kInternal, "wrong sum");
    }
    return {};
  }));
}

}  // namespace
}  // namespace tessera
