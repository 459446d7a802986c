// Device profiles as files: exact both ways, and refused for the right reason.
#include "serialize/device_profile_json.h"

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

using namespace tessera;

namespace {

DeviceProfile example() {
  DeviceProfile profile;
  profile.device = "cpu (2 cores, avx2)";
  profile.cores = 2;
  profile.run_s = 1.0 / 3e5;
  profile.stream_switch_s = 1.0 / 3e6;
  profile.busy_stream_switch_s = 1.0 / 7e4;
  profile.contention = 1.25;
  profile.oversubscription = 1.5;
  profile.kernels = {{"", "", DType::kF32, {"bytes"}, {{64, 4096}}, {1e-6, 2e-6}, {1.5e-6, 4e-6}},
                     {"matmul",
                      "trans_w=0",
                      DType::kF32,
                      {"*", "k", "n"},
                      {{1, 8}, {16}, {16, 64}},
                      {1e-6, 2e-6, 3e-6, 7e-6},
                      {2e-6, 2e-6, 6e-6, 1.4e-5}}};
  profile.collectives = {{CollectiveKind::kAllReduce, 2, {{4096, 65536}, {1e-5, 3e-5}}},
                         {CollectiveKind::kAllReduce, 4, {{4096, 65536}, {2e-5, 5e-5}}},
                         {CollectiveKind::kBroadcast, 2, {{4096}, {1e-5}}}};
  profile.messages = {{4096, 65536}, {1e-5, 2e-5}};
  profile.copies = {{Tier::kDevice, Tier::kHost, {{4096, 65536}, {1e-6, 8e-6}}}};
  return profile;
}

std::string text_of_example() {
  DeviceProfile profile = example();
  return device_profile_to_json(profile);
}

std::string refusal(const std::string& text) {
  const auto profile = device_profile_from_json(text);
  if (profile.ok()) return "";
  CHECK(profile.status().code() == StatusCode::kCorrupt);
  CHECK(profile.status().message().find("tessera calibrate") != std::string::npos);
  return std::string(profile.status().message());
}

// `what` replaced once; the checksum stays that of the original.
std::string changed(const std::string& what, const std::string& with) {
  std::string text = nlohmann::ordered_json::parse(text_of_example()).dump();
  const size_t at = text.find(what);
  REQUIRE_MESSAGE(at != std::string::npos, what);
  return text.replace(at, what.size(), with);
}

bool says(const std::string& message, const std::string& part) {
  const bool found = message.find(part) != std::string::npos;
  if (!found) MESSAGE("'" << part << "' is not in: " << message);
  return found;
}

}  // namespace

TEST_CASE("a profile read back is the profile written, and the same bytes come out again") {
  DeviceProfile profile = example();
  const std::string text = device_profile_to_json(profile);
  CHECK(profile.checksum != 0);
  const auto back = device_profile_from_json(text);
  REQUIRE_MESSAGE(back.ok(), back.status().to_string());
  CHECK(*back == profile);
  DeviceProfile again = *back;
  CHECK(device_profile_to_json(again) == text);
  // Indentation is nobody's business.
  CHECK(device_profile_from_json(nlohmann::ordered_json::parse(text).dump(4)).ok());
}

TEST_CASE("a profile tells what other processes took meanwhile, where that was more than a little") {
  CHECK(text_of_example().find("others_share") == std::string::npos);
  DeviceProfile busy = example();
  busy.others_share = 0.37;
  const std::string text = device_profile_to_json(busy);
  CHECK(text.find("\"others_share\": 0.37") != std::string::npos);
  const auto back = device_profile_from_json(text);
  REQUIRE_MESSAGE(back.ok(), back.status().to_string());
  CHECK(*back == busy);
  CHECK(says(refusal(changed("\"copies\"", "\"others_share\":1.5,\"copies\"")), "others_share = 1.5"));
}

TEST_CASE("a profile that was changed after it was written is refused by its checksum") {
  CHECK(says(refusal(changed("1.5e-06", "1.6e-06")), "changed after it was written"));
  CHECK(says(refusal(changed("\"cpu (2 cores, avx2)\"", "\"cpu (4 cores, avx2)\"")), "checksum"));
  const std::string text = text_of_example();
  const size_t at = text.find("\"checksum\": \"") + 13;
  std::string other = text;
  other[at] = other[at] == '0' ? '1' : '0';
  CHECK(says(refusal(other), "checksum"));
}

TEST_CASE("a profile that cannot be is refused with the place and the value") {
  CHECK(says(refusal(changed("[1e-06,2e-06]", "[-1e-06,2e-06]")), "seconds[0] = -1e-06"));
  CHECK(says(refusal(changed("[1e-06,2e-06]", "[0.0,2e-06]")), "above 0"));
  CHECK(says(refusal(changed("[1e-06,2e-06]", "[1e999,2e-06]")), "not JSON"));
  CHECK(says(refusal(changed("[1e-06,2e-06]", "[null,2e-06]")), "seconds[0] = null"));
  CHECK(says(refusal(changed("[1e-06,2e-06]", "[1e-06]")), "1 seconds"));
  // A larger product, transfer or group of bytes that is cheaper than a smaller one.
  CHECK(says(refusal(changed("[1e-06,2e-06,3e-06,7e-06]", "[1e-06,2e-06,0.5e-06,7e-06]")),
             "more work cannot be faster"));
  CHECK(says(refusal(changed("\"seconds\":[1e-05,3e-05]", "\"seconds\":[1e-05,0.3e-05]")),
             "more work cannot be faster"));
  CHECK(says(refusal(changed("[1.5e-06,4e-06]", "[1.5e-06,0.4e-06]")), "more work cannot be faster"));
  CHECK(says(refusal(changed("[64.0,4096.0]", "[4096.0,64.0]")), "wanted them to rise"));
  CHECK(says(refusal(changed("\"cores\":2", "\"cores\":0")), "shared_seconds"));
  CHECK(says(refusal(changed("\"cores\":2", "\"cores\":-2")), "cores = -2"));
  CHECK(says(refusal(changed("\"op\":\"matmul\"", "\"op\":\"matmulx\"")), "matmulx"));
  CHECK(says(refusal(changed("trans_w=0", "transw=0")), "transw=0"));
  CHECK(says(refusal(changed("\"dtype\":\"f32\"", "\"dtype\":\"f33\"")), "f33"));
  CHECK(says(refusal(changed("\"all_reduce\"", "\"all_repeat\"")), "all_repeat"));
  CHECK(says(refusal(changed("\"members\":4", "\"members\":2")), "not after the one before it"));
  CHECK(says(refusal(changed("\"run_s\"", "\"run_t\"")), "run_"));
  CHECK(says(refusal(changed("\"crowded\":1.5", "\"crowded\":1.2")), "together = 1.25 and crowded = 1.2"));
  CHECK(says(refusal(changed("\"handover_s\":", "\"handover_s\":-")), "handover_s"));
}

TEST_CASE("algorithms are added to a profile while its prices and their checksum stay") {
  DeviceProfile profile = example();
  const std::string without = device_profile_to_json(profile);
  const uint64_t checksum = profile.checksum;
  CHECK(without.find("\"version\": 2") != std::string::npos);
  profile.algorithms = {0x0123456789abcdef,
                        {{"matmul f32[8, 16], f32[16, 4] -> f32[8, 4] #00", "cublaslt:31a2"},
                         {"matmul f32[8, 16], f32[16, 9] -> f32[8, 9] #01", "cublaslt:00c7.1fff"}}};
  const std::string text = device_profile_to_json(profile);
  CHECK(text.find("\"version\": 3") != std::string::npos);
  CHECK(profile.checksum == checksum);
  const auto back = device_profile_from_json(text);
  REQUIRE_MESSAGE(back.ok(), back.status().to_string());
  CHECK(*back == profile);
  DeviceProfile again = *back;
  CHECK(device_profile_to_json(again) == text);

  const auto refused = [&](const std::string& what, const std::string& with) {
    std::string other = nlohmann::ordered_json::parse(text).dump();
    const size_t at = other.find(what);
    REQUIRE_MESSAGE(at != std::string::npos, what);
    return refusal(other.replace(at, what.size(), with));
  };
  CHECK(says(refused("cublaslt:31a2", "cublaslt:01a2"), "changed after they were written"));
  CHECK(says(refused("0123456789abcdef", "0123456789abcdee"), "changed after they were written"));
  CHECK(says(refused("0123456789abcdef", "123456789abcdef"), "wanted 16 hexadecimal digits"));
  CHECK(says(refused("0123456789abcdef", "x123456789abcdef"), "wanted 16 hexadecimal digits"));
  CHECK(says(refused("f32[8, 9] #01", "f32[8, 4] #00"), "changed after"));
  CHECK(says(refused("matmul f32[8, 16], f32[16, 9]", "a"), "not after the one before it"));
  CHECK(says(refused("cublaslt:31a2", ""), "an empty text"));
  CHECK(says(refused("\"variant\":\"cublaslt:31a2\"", "\"variant\":7"), "variant = 7"));
  CHECK(says(refused("\"choices\":[", "\"choices\":[7,"), "is not an object"));
  CHECK(says(refused("\"algorithms\":{", "\"algorithm\":{"), "algorithms"));
  CHECK(says(refused("\"version\":3", "\"version\":2"), "the unknown key 'algorithms'"));
  // The profile of another device, whole and with its own checksum.
  DeviceProfile elsewhere = profile;
  elsewhere.device = "cpu (4 cores, avx2)";
  auto theirs = nlohmann::ordered_json::parse(device_profile_to_json(elsewhere));
  auto ours = nlohmann::ordered_json::parse(text);
  ours["algorithms"] = theirs["algorithms"];
  CHECK(says(refusal(ours.dump()), "are of the device 'cpu (4 cores, avx2)'"));
}

TEST_CASE("another format, another version, a truncated file and no file at all are told apart") {
  CHECK(
      says(refusal(changed("\"version\":2", "\"version\":1")), "its version is 1, this build reads 2 and 3"));
  CHECK(says(refusal(changed("tessera-device-profile", "tessera-cluster")), "tessera-cluster"));
  const std::string text = text_of_example();
  for (const size_t size : {size_t{0}, size_t{1}, text.size() / 3, text.size() / 2, text.size() - 3})
    CHECK(says(refusal(text.substr(0, size)), "not JSON"));
  CHECK(says(refusal("[]"), "not an object"));
  CHECK(says(refusal("{}"), "no key"));
  CHECK(says(refusal(std::string(100, '[') + std::string(100, ']')), "nests deeper"));
  CHECK(says(refusal(std::string(size_t{17} << 20, ' ')), "at most"));
}
