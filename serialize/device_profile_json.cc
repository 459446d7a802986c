// {"format", "version", "checksum", "content": {"device", "cores", "run_s", "kernels", "collectives",
// ...}}, and from version 3 "algorithms": {"device", "backend", "checksum", "choices": [{"kernel",
// "variant"}]}, which may grow while prices, and the checksum that plans refer to, stay. A profile
// without algorithms is version 2. Checksums are of one-line text, so indentation does not matter.
// "others_share" is present only if other processes used a notable share of the cores.
#include "serialize/device_profile_json.h"

#include <algorithm>
#include <charconv>
#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <set>
#include <span>

#include "graph/base/quote.h"
#include "graph/base/text.h"
#include "graph/op_def.h"
#include "serialize/envelope.h"
#include "text/json.h"

namespace tessera {

namespace {

constexpr std::string_view kFormat = "tessera-device-profile";
constexpr int64_t kVersion = 2, kVersionWithAlgorithms = 3;
constexpr size_t kMostBytes = size_t{16} << 20;
constexpr size_t kMostAxes = 4, kMostMarks = 256, kMostPoints = size_t{1} << 18;
constexpr size_t kMostChoices = size_t{1} << 16;
constexpr std::string_view kCollectives[] = {"all_reduce", "all_gather", "reduce_scatter", "all_to_all",
                                             "broadcast"};
constexpr std::string_view kTiers[] = {"device", "host", "file"};
constexpr std::string_view kRemedy = "make it again with `tessera calibrate`";

Json to_json(const PriceCurve& curve) { return {{"bytes", curve.bytes}, {"seconds", curve.seconds}}; }

Json content_of(const DeviceProfile& profile) {
  Json kernels = Json::array(), collectives = Json::array(), copies = Json::array();
  for (const PriceTable& table : profile.kernels)
    kernels.push_back({{"op", table.op},
                       {"form", table.form},
                       {"dtype", info(table.dtype).name},
                       {"axes", table.axes},
                       {"marks", table.marks},
                       {"seconds", table.seconds},
                       {"shared_seconds", table.shared_seconds}});
  for (const CollectivePrice& price : profile.collectives)
    collectives.push_back({{"kind", kCollectives[static_cast<size_t>(price.kind)]},
                           {"members", price.members},
                           {"curve", to_json(price.curve)}});
  for (const CopyPrice& price : profile.copies)
    copies.push_back({{"from", kTiers[static_cast<size_t>(price.from)]},
                      {"to", kTiers[static_cast<size_t>(price.to)]},
                      {"curve", to_json(price.curve)}});
  Json content = {{"device", profile.device},
                  {"cores", profile.cores},
                  {"run_s", profile.run_s},
                  {"handover_s", profile.stream_switch_s},
                  {"busy_handover_s", profile.busy_stream_switch_s},
                  {"together", profile.contention},
                  {"crowded", profile.oversubscription},
                  {"kernels", kernels},
                  {"collectives", collectives},
                  {"messages", to_json(profile.messages)},
                  {"copies", copies}};
  if (profile.others_share > 0) content["others_share"] = profile.others_share;
  if (profile.network.bytes_per_s > 0)
    content["network"] = {{"bytes_per_s", profile.network.bytes_per_s}, {"latency_s", profile.network.latency_s}};
  return content;
}

std::string hexadecimal(uint64_t value) {
  char text[17];
  std::snprintf(text, sizeof text, "%016" PRIx64, value);
  return text;
}

// The algorithms without their checksum.
Json algorithms_of(const AlgorithmChoices& algorithms, const std::string& device) {
  Json choices = Json::array();
  for (const AlgorithmChoice& choice : algorithms.choices)
    choices.push_back({{"kernel", choice.kernel}, {"variant", choice.variant}});
  return {{"device", device}, {"backend", hexadecimal(algorithms.backend)}, {"choices", choices}};
}

uint64_t checksum_of(const Json& content) {
  const std::string text = content.dump();
  return xxh3(std::as_bytes(std::span(text)));
}

std::string shown(const Json& value) { return quote_json(value, 80); }

// Object: reads one object with exactly the given keys; the first error anywhere is kept.
class Object {
 public:
  Object(const Json& json, std::string where, std::string& failure, std::initializer_list<const char*> keys)
      : Object(json, std::move(where), failure, std::span<const char* const>(keys.begin(), keys.size())) {}
  Object(const Json& json, std::string where, std::string& failure, std::span<const char* const> keys)
      : json_(json), where_(std::move(where)), failure_(failure) {
    if (!json.is_object()) fail("is not an object");
    for (const char* key : keys)
      if (json.is_object() && !json.contains(key)) fail(format("has no key '{}'", key));
    if (!json.is_object()) return;
    for (const auto& [key, value] : json.items())
      if (std::ranges::find(keys, key) == keys.end()) fail(format("has the unknown key '{}'", quote(key)));
  }

  std::string text(const char* key, size_t most = 256) const {
    const Json* value = find(key);
    if (value == nullptr) return {};
    if (value->is_string() && value->get_ref<const std::string&>().size() <= most) return *value;
    fail(format("has {} = {}, wanted a short text", key, shown(*value)));
    return {};
  }
  int32_t count(const char* key, int32_t least, int32_t most) const {
    const Json* value = find(key);
    if (value == nullptr) return least;
    if (value->is_number_integer() && value->get<int64_t>() >= least && value->get<int64_t>() <= most)
      return value->get<int32_t>();
    fail(format("has {} = {}, wanted a whole number from {} to {}", key, shown(*value), least, most));
    return least;
  }
  double number(const char* key, bool may_be_zero = false) const {
    const Json* value = find(key);
    return value == nullptr ? 0 : real(*value, key, may_be_zero);
  }
  std::vector<double> numbers(const char* key) const {
    const Json* value = find(key);
    return value == nullptr ? std::vector<double>{} : reals(*value, key);
  }
  std::vector<double> reals(const Json& value, const std::string& name) const {
    std::vector<double> all;
    if (!value.is_array() || value.size() > kMostPoints) {
      fail(format("has {} = {}, wanted a list of numbers", name, shown(value)));
      return all;
    }
    for (size_t i = 0; i < value.size() && failure_.empty(); ++i)
      all.push_back(real(value[i], format("{}[{}]", name, i), false));
    return all;
  }
  // Index of a word among `words`.
  size_t word(const char* key, std::span<const std::string_view> words) const {
    const std::string name = text(key);
    const auto found = std::ranges::find(words, name);
    if (found == words.end()) {
      fail(format("has {} = '{}', which is unknown", key, name));
      return 0;
    }
    return static_cast<size_t>(found - words.begin());
  }
  template <class Each>
  void list(const char* key, Each each) const {
    const Json* value = find(key);
    if (value == nullptr) return;
    if (!value->is_array()) return fail(format("has {} = {}, wanted a list", key, shown(*value)));
    for (size_t i = 0; i < value->size() && failure_.empty(); ++i)
      each((*value)[i], format("{}.{}[{}]", where_, key, i));
  }
  const Json* find(const char* key) const {
    return failure_.empty() && json_.contains(key) ? &json_[key] : nullptr;
  }
  const std::string& where() const { return where_; }
  void fail(const std::string& message) const {
    if (failure_.empty()) failure_ = format("{} {}", where_, message);
  }
  bool good() const { return failure_.empty(); }

 private:
  // JSON has no infinities; the parser refuses literals beyond f64.
  double real(const Json& value, const std::string& name, bool may_be_zero) const {
    const bool fits = value.is_number() && std::isfinite(value.get<double>()) &&
                      (value.get<double>() > 0 || (may_be_zero && value.get<double>() == 0));
    if (fits) return value.get<double>();
    fail(format("has {} = {}, wanted a finite number {} 0", name, shown(value),
                may_be_zero ? "from" : "above"));
    return 1;
  }

  const Json& json_;
  std::string where_;
  std::string& failure_;
};

void check_ascending(const Object& in, const std::vector<double>& marks, const std::string& name) {
  for (size_t i = 1; i < marks.size(); ++i)
    if (marks[i] <= marks[i - 1])
      return in.fail(
          format("has {}[{}] = {} after {}, wanted them to rise", name, i, marks[i], marks[i - 1]));
}

// Checks that more work never takes less time along any axis.
void check_monotonic(const Object& in, const std::vector<std::vector<double>>& marks,
                     const std::vector<double>& seconds, const std::string& name) {
  size_t stride = 1;
  for (size_t axis = marks.size(); axis-- > 0;) {
    const size_t count = marks[axis].size();
    for (size_t i = stride; i < seconds.size(); ++i)
      if (i / stride % count != 0 && seconds[i] < seconds[i - stride])
        return in.fail(format("has {}[{}] = {} where less work takes {}: more work cannot be faster", name, i,
                              seconds[i], seconds[i - stride]));
    stride *= count;
  }
}

PriceCurve read_curve(const Json& json, const std::string& where, std::string& failure, bool may_be_empty) {
  const Object in(json, where, failure, {"bytes", "seconds"});
  PriceCurve curve{in.numbers("bytes"), in.numbers("seconds")};
  if (!in.good()) return curve;
  if (curve.bytes.size() != curve.seconds.size() || (curve.bytes.empty() && !may_be_empty))
    in.fail(format("has {} bytes and {} seconds", curve.bytes.size(), curve.seconds.size()));
  check_ascending(in, curve.bytes, "bytes");
  if (in.good() && !curve.bytes.empty()) check_monotonic(in, {curve.bytes}, curve.seconds, "seconds");
  return curve;
}

void read_axes(const Object& in, PriceTable& table) {
  in.list("axes", [&](const Json& axis, const std::string& where) {
    const std::string name = axis.is_string() ? axis.get<std::string>() : "";
    const bool factors =
        name == "*" || (!name.empty() && name.size() <= 26 &&
                        std::ranges::all_of(name, [](char c) { return c >= 'a' && c <= 'z'; }));
    if (!factors) in.fail(format("has {} = {}, wanted bytes, factors or *", where, shown(axis)));
    table.axes.push_back(name);
  });
  in.list("marks", [&](const Json& marks, const std::string& where) {
    table.marks.push_back(in.reals(marks, where));
    if (table.marks.back().empty() || table.marks.back().size() > kMostMarks)
      in.fail(format("has {} marks on an axis, wanted 1 to {}", table.marks.back().size(), kMostMarks));
    check_ascending(in, table.marks.back(), where);
  });
  if (table.axes.empty() || table.axes.size() > kMostAxes || table.axes.size() != table.marks.size())
    in.fail(format("has {} axes and marks on {}, wanted as many, 1 to {}", table.axes.size(),
                   table.marks.size(), kMostAxes));
}

PriceTable read_table(const Json& json, const std::string& where, std::string& failure, int32_t cores) {
  const Object in(json, where, failure,
                  {"op", "form", "dtype", "axes", "marks", "seconds", "shared_seconds"});
  PriceTable table;
  table.op = in.text("op");
  table.form = in.text("form");
  const std::string dtype = in.text("dtype");
  if (!in.good()) return table;
  const OpDef* op = table.op.empty() ? nullptr : find_op(table.op);
  if (op == nullptr && !table.op.empty()) in.fail(format("has op = '{}', which does not exist", table.op));
  const std::string attribute = table.form.substr(0, table.form.find('='));
  if (!table.form.empty() && (op == nullptr || table.form.find('=') == std::string::npos ||
                              std::ranges::find(op->attrs, attribute, &AttrSpec::name) == op->attrs.end()))
    in.fail(format("has form = '{}', wanted an attribute of the op and its value", table.form));
  const auto type = dtype_from_name(dtype);
  if (!type) in.fail(format("has dtype = '{}', which is no element type", dtype));
  if (type) table.dtype = *type;
  read_axes(in, table);
  if (table.op.empty() && table.axes != std::vector<std::string>{"bytes"})
    in.fail("is for any op, so it can only go by bytes");
  table.seconds = in.numbers("seconds");
  table.shared_seconds = in.numbers("shared_seconds");
  if (!in.good()) return table;
  size_t points = 1;
  for (const std::vector<double>& marks : table.marks) points *= marks.size();
  if (table.seconds.size() != points || table.shared_seconds.size() != (cores > 0 ? points : 0))
    in.fail(format("has {} seconds and {} shared_seconds for a grid of {} and {} cores", table.seconds.size(),
                   table.shared_seconds.size(), points, cores));
  if (!in.good()) return table;
  check_monotonic(in, table.marks, table.seconds, "seconds");
  if (in.good() && cores > 0) check_monotonic(in, table.marks, table.shared_seconds, "shared_seconds");
  return table;
}

DeviceProfile read_content(const Json& json, std::string& failure) {
  std::vector<const char*> keys = {"device",          "cores",    "run_s",   "handover_s",
                                   "busy_handover_s", "together", "crowded", "kernels",
                                   "collectives",     "messages", "copies"};
  const bool was_busy = json.is_object() && json.contains("others_share");  // written only then
  if (was_busy) keys.push_back("others_share");
  if (json.is_object() && json.contains("network")) keys.push_back("network");  // of several machines only
  const Object in(json, "content", failure, keys);
  DeviceProfile profile;
  profile.device = in.text("device");
  profile.cores = in.count("cores", 0, 1 << 16);
  profile.run_s = in.number("run_s", true);
  profile.stream_switch_s = in.number("handover_s", true);
  profile.busy_stream_switch_s = in.number("busy_handover_s", true);
  profile.contention = in.number("together");
  profile.oversubscription = in.number("crowded");
  if (profile.contention < 1 || profile.oversubscription < profile.contention)
    in.fail(format("has together = {} and crowded = {}, wanted 1 or more and no fall", profile.contention,
                   profile.oversubscription));
  if (was_busy) profile.others_share = in.number("others_share");
  if (profile.others_share > 1)
    in.fail(format("has others_share = {}, wanted a share up to 1", profile.others_share));
  std::set<std::string> seen;
  const auto once = [&](const std::string& name, const std::string& where) {
    if (!seen.insert(name).second) in.fail(format("has {} twice, again at {}", name, where));
  };
  in.list("kernels", [&](const Json& table, const std::string& where) {
    const PriceTable& one = profile.kernels.emplace_back(read_table(table, where, failure, profile.cores));
    once(format("op '{}' {} {}", one.op, one.form, info(one.dtype).name), where);
  });
  in.list("collectives", [&](const Json& item, const std::string& where) {
    const Object one(item, where, failure, {"kind", "members", "curve"});
    CollectivePrice price;
    price.kind = static_cast<CollectiveKind>(one.word("kind", kCollectives));
    price.members = one.count("members", 2, 1 << 20);
    if (const Json* curve = one.find("curve"))
      price.curve = read_curve(*curve, where + ".curve", failure, false);
    if (!profile.collectives.empty() && one.good()) {
      const CollectivePrice& last = profile.collectives.back();
      if (std::pair(price.kind, price.members) <= std::pair(last.kind, last.members))
        one.fail("is not after the one before it, by kind and members");
    }
    profile.collectives.push_back(std::move(price));
  });
  if (const Json* messages = in.find("messages"))
    profile.messages = read_curve(*messages, "content.messages", failure, true);
  if (json.is_object() && json.contains("network"))
    if (const Json* network = in.find("network")) {
      const Object one(*network, "content.network", failure, {"bytes_per_s", "latency_s"});
      profile.network = {one.number("bytes_per_s"), one.number("latency_s", true)};
    }
  in.list("copies", [&](const Json& item, const std::string& where) {
    const Object one(item, where, failure, {"from", "to", "curve"});
    CopyPrice price;
    price.from = static_cast<Tier>(one.word("from", kTiers));
    price.to = static_cast<Tier>(one.word("to", kTiers));
    if (const Json* curve = one.find("curve"))
      price.curve = read_curve(*curve, where + ".curve", failure, false);
    once(format("a copy of tiers {} and {}", static_cast<int>(price.from), static_cast<int>(price.to)),
         where);
    profile.copies.push_back(std::move(price));
  });
  if (profile.device.empty()) in.fail("has no device");
  if (profile.kernels.empty()) in.fail("has no kernels");
  return profile;
}

AlgorithmChoices read_algorithms(const Json& json, const std::string& device, std::string& failure) {
  const Object in(json, "algorithms", failure, {"device", "backend", "checksum", "choices"});
  AlgorithmChoices algorithms;
  const std::string checksum = in.text("checksum"), backend = in.text("backend");
  const auto* const end = backend.data() + backend.size();
  const auto read = std::from_chars(backend.data(), end, algorithms.backend, 16);
  if (in.good() && (read.ec != std::errc() || read.ptr != end || backend != hexadecimal(algorithms.backend)))
    in.fail(format("has backend = '{}', wanted 16 hexadecimal digits", backend.substr(0, 40)));
  if (const std::string of = in.text("device"); in.good() && of != device)
    in.fail(format("are of the device '{}', the profile of '{}'", of.substr(0, 128), device));
  if (const Json* choices = in.find("choices"); choices != nullptr && choices->size() > kMostChoices)
    in.fail(format("has {} choices, wanted at most {}", choices->size(), kMostChoices));
  in.list("choices", [&](const Json& item, const std::string& where) {
    const Object one(item, where, failure, {"kernel", "variant"});
    AlgorithmChoice choice{one.text("kernel", 4096), one.text("variant")};
    if (one.good() && (choice.kernel.empty() || choice.variant.empty())) one.fail("has an empty text");
    if (one.good() && !algorithms.choices.empty() && choice.kernel <= algorithms.choices.back().kernel)
      one.fail("is not after the one before it, by kernel");
    algorithms.choices.push_back(std::move(choice));
  });
  if (!in.good()) return algorithms;
  if (const std::string made = hexadecimal(checksum_of(algorithms_of(algorithms, device))); checksum != made)
    in.fail(format("have the checksum {}, their content {}: they were changed after they were written",
                   checksum.substr(0, 40), made));
  return algorithms;
}

Status refuse(const std::string& what) {
  return Status(StatusCode::kCorrupt, format("device profile: {}; {}", what, kRemedy));
}

}  // namespace

std::string device_profile_to_json(DeviceProfile& profile) {
  const Json content = content_of(profile);
  profile.checksum = checksum_of(content);
  const bool has_algorithms = !profile.algorithms.choices.empty();
  Json file = {{"format", kFormat},
               {"version", has_algorithms ? kVersionWithAlgorithms : kVersion},
               {"checksum", hexadecimal(profile.checksum)},
               {"content", content}};
  if (has_algorithms) {
    Json algorithms = algorithms_of(profile.algorithms, profile.device);
    algorithms["checksum"] = hexadecimal(checksum_of(algorithms));
    file["algorithms"] = std::move(algorithms);
  }
  return file.dump(1) + "\n";
}

Result<DeviceProfile> device_profile_from_json(std::string_view text) {
  Result<Json> read = parse_json(text, "its text", kMostBytes);
  if (!read.ok()) return refuse(std::string(read.status().message()));
  Json& file = *read;
  std::string failure;
  const bool has_algorithms =
      file.is_object() && file.contains("version") && file["version"] == Json(kVersionWithAlgorithms);
  std::vector<const char*> keys = {"format", "version", "checksum", "content"};
  if (has_algorithms) keys.push_back("algorithms");
  const Object in(file, "the file", failure, keys);
  if (!file.is_object()) return refuse(failure);
  if (file.contains("format") && file["format"] != Json(kFormat))
    return refuse(format("its format is {}, wanted '{}'", shown(file["format"]), kFormat));
  if (file.contains("version") && file["version"] != Json(kVersion) && !has_algorithms)
    return refuse(format("its version is {}, this build reads {} and {}", shown(file["version"]), kVersion,
                         kVersionWithAlgorithms));
  const std::string checksum = in.text("checksum");
  if (!failure.empty()) return refuse(failure);
  DeviceProfile profile = read_content(file["content"], failure);
  if (!failure.empty()) return refuse(failure);
  profile.checksum = checksum_of(file["content"]);
  if (checksum != hexadecimal(profile.checksum))
    return refuse(format("its checksum is {}, that of its content {}: it was changed after it was written",
                         checksum.substr(0, 40), hexadecimal(profile.checksum)));
  if (has_algorithms) profile.algorithms = read_algorithms(file["algorithms"], profile.device, failure);
  if (!failure.empty()) return refuse(failure);
  return profile;
}

}  // namespace tessera
