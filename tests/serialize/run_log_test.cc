// Files of a training run: events as TensorBoard's format has them, lines that survive a kill, bounded series, a page
// that its data cannot break.
#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "graph/base/status_codes.h"
#include "serialize/run_log/event_file.h"
#include "serialize/run_log/line_file.h"
#include "serialize/run_log/run_page.h"
#include "serialize/run_log/run_series.h"
#include "tests/file_size_limit.h"
#include "tests/serialize/test_data.h"

namespace tessera {
namespace {

using namespace tessera::testing;

// Fields of a protocol buffer by number, each as its bytes: written from the format's description, not from the writer.
using Fields = std::multimap<uint32_t, std::string>;
uint64_t take_varint(std::string_view& bytes) {
  uint64_t value = 0;
  for (int shift = 0;; shift += 7) {
    const auto byte = static_cast<unsigned char>(bytes.front());
    bytes.remove_prefix(1);
    value |= uint64_t{byte & 0x7fu} << shift;
    if (byte < 0x80) return value;
  }
}
Fields fields_of(std::string_view bytes) {
  Fields fields;
  while (!bytes.empty()) {
    const uint64_t tag = take_varint(bytes);
    const uint64_t wire = tag & 7;
    if (wire == 0) {
      fields.emplace(tag >> 3, std::to_string(take_varint(bytes)));
      continue;
    }
    const uint64_t size = wire == 1 ? 8 : wire == 5 ? 4 : take_varint(bytes);
    fields.emplace(tag >> 3, bytes.substr(0, size));
    bytes.remove_prefix(size);
  }
  return fields;
}
std::string event_field(const Fields& fields, uint32_t number) {
  const auto found = fields.find(number);
  REQUIRE(found != fields.end());
  return found->second;
}
template <class T>
T value_of(std::string_view bytes) {
  REQUIRE(bytes.size() == sizeof(T));
  T value;
  std::memcpy(&value, bytes.data(), sizeof value);
  return value;
}

// Events of a file; every length and checksum is checked.
std::vector<Fields> events_of(const std::string& path) {
  const std::string bytes = read_text_file(path);
  const auto crc_is = [](std::string_view of, std::string_view stored) {
    const uint32_t crc = crc32c(of);
    return ((crc >> 15) | (crc << 17)) + 0xa282ead8u == value_of<uint32_t>(stored);
  };
  std::vector<Fields> events;
  for (std::string_view rest = bytes; !rest.empty();) {
    REQUIRE(rest.size() >= 16);
    const auto size = value_of<uint64_t>(rest.substr(0, 8));
    REQUIRE(crc_is(rest.substr(0, 8), rest.substr(8, 4)));
    REQUIRE(rest.size() >= 16 + size);
    REQUIRE(crc_is(rest.substr(12, size), rest.substr(12 + size, 4)));
    events.push_back(fields_of(rest.substr(12, size)));
    rest.remove_prefix(16 + size);
  }
  return events;
}

TEST_CASE("crc32c_is_castagnolis") {
  // The check value of the polynomial's catalogue, and vectors of RFC 3720, B.4.
  CHECK(crc32c("123456789") == 0xe3069283u);
  CHECK(crc32c(std::string(32, '\0')) == 0x8a9136aau);
  CHECK(crc32c(std::string(32, '\xff')) == 0x62a8ab43u);
  CHECK(crc32c("") == 0u);
}

TEST_CASE("event_files_have_scalars_and_texts_by_step") {
  const ScratchFolder scratch;
  const std::string folder = scratch / "events/nested";
  std::string path;
  {
    Result<EventFile> file = EventFile::create(folder, 41);
    REQUIRE(file.ok());
    path = file->path();
    const ScalarValue values[] = {{"train/loss", 2.5}, {"train/lr", 1e-3}};
    REQUIRE(file->add_scalars(42, values).ok());
    const std::string long_text(300, 'x');
    REQUIRE(file->add_text(42, "sample", long_text).ok());
  }
  CHECK(std::filesystem::path(path).filename().string().find("tfevents") != std::string::npos);
  const std::vector<Fields> events = events_of(path);
  REQUIRE(events.size() == 4);
  CHECK(event_field(events[0], 3) == "brain.Event:2");
  CHECK(value_of<double>(event_field(events[0], 1)) > 1.6e9);  // seconds since 1970
  CHECK(event_field(events[1], 2) == "42");  // later steps of earlier files no longer count
  CHECK(event_field(fields_of(event_field(events[1], 7)), 1) == "1");
  CHECK(event_field(events[2], 2) == "42");
  const Fields summary = fields_of(event_field(events[2], 5));
  REQUIRE(summary.count(1) == 2);
  const Fields loss = fields_of(summary.begin()->second);
  CHECK(event_field(loss, 1) == "train/loss");
  CHECK(value_of<float>(event_field(loss, 2)) == 2.5f);
  const Fields text = fields_of(event_field(fields_of(event_field(events[3], 5)), 1));
  CHECK(event_field(text, 1) == "sample");
  const Fields tensor = fields_of(event_field(text, 8));
  CHECK(event_field(tensor, 1) == "7");
  CHECK(event_field(tensor, 8) == std::string(300, 'x'));
  CHECK(event_field(fields_of(event_field(fields_of(event_field(text, 9)), 1)), 1) == "text");
}

const std::string kFirst = R"({"kind":"header","format":"tessera-run","version":1})"
                           "\n";
std::string step_line(int64_t step) {
  return "{\"kind\":\"step\",\"step\":" + std::to_string(step) + ",\"loss\":1.5}\n";
}

struct Opened {
  Status status;
  std::vector<int64_t> kept;
  bool is_new = false;
};
Opened open_lines(const std::string& path, int64_t step) {
  Opened opened;
  Result<LineFile> file = LineFile::open(
      path, step, [&](const Json& line) { opened.kept.push_back(line.value("step", int64_t{-1})); });
  opened.status = file.status();
  if (file.ok()) opened.is_new = file->is_new();
  return opened;
}

TEST_CASE("lines_of_later_steps_and_a_line_that_is_cut_off_go_when_a_run_is_resumed") {
  const ScratchFolder scratch;
  const std::string path = scratch / "run.jsonl";
  const std::string kept = kFirst + step_line(1) + step_line(2);
  for (const std::string& rest :
       {std::string(), step_line(3), step_line(3) + step_line(4), std::string("{\"kind\":\"step\",\"st"),
        std::string("{\"kind\":\"end\",\"step\":2}\n"), std::string("\0\0\0\n", 4), std::string("[1]\n")}) {
    write_text_file(path, kept + rest);
    const Opened opened = open_lines(path, 2);
    REQUIRE(opened.status.ok());
    CHECK(opened.kept == std::vector<int64_t>{-1, 1, 2});
    CHECK_FALSE(opened.is_new);
    CHECK(read_text_file(path) == kept);
  }
  // Every length that a kill may leave.
  for (size_t size = 0; size <= kept.size(); ++size) {
    write_text_file(path, kept.substr(0, size));
    const Opened opened = open_lines(path, 2);
    const bool begins_a_header = size == 0 || size >= std::strlen(R"({"kind":"header")");
    CHECK(opened.status.ok() == begins_a_header);
    if (opened.status.ok()) {
      CHECK(opened.is_new == (size < kFirst.size()));
      CHECK(read_text_file(path) == kept.substr(0, opened.is_new ? 0 : kept.rfind('\n', size - 1) + 1));
    }
  }
  write_text_file(path, kept);
  CHECK(open_lines(path, 0).is_new);  // a run from its beginning
  CHECK(read_text_file(path).empty());
}

TEST_CASE("lines_and_events_that_found_no_room_are_written_when_there_is_some") {
  const ScratchFolder scratch;
  const std::string path = scratch / "run.jsonl";
  Result<LineFile> lines = LineFile::open(path, 0, [](const Json&) {});
  REQUIRE(lines.ok());
  Result<EventFile> events = EventFile::create(scratch / "events", -1);
  REQUIRE(events.ok());
  const ScalarValue values[] = {{"train/loss", 2.5}};
  std::string wanted;
  for (int64_t step = 0; step < 6; ++step) {
    const bool is_full = step == 2 || step == 3;
    std::optional<test::FileSizeLimit> limit;
    if (is_full) limit.emplace(150);
    const Json line = {{"kind", "step"}, {"step", step}, {"text", std::string(20, 'x')}};
    wanted += dump(line) + "\n";
    const Status line_added = lines->append(line), event_added = events->add_scalars(step, values);
    limit.reset();
    CHECK(line_added.ok() == !is_full);
    CHECK(event_added.ok() == !is_full);
    if (!is_full) continue;
    CHECK(line_added.code() == StatusCode::kIo);
    CHECK(line_added.message() == path + ": cannot write: File too large");
    CHECK(read_text_file(path) == wanted.substr(0, 150));
  }
  CHECK(read_text_file(path) == wanted);
  CHECK(events_of(events->path()).size() == 7);
}

TEST_CASE("files_of_anything_else_are_refused_and_stay") {
  const ScratchFolder scratch;
  const std::string path = scratch / "notes.txt";
  for (const std::string& text :
       {std::string("my notes\n"), std::string("{\"a\":1}\n"), std::string("no line end"),
        std::string("[]\n"), std::string(5 << 20, 'a'), std::string("{\"kind\":\"step\",\"step\":1}\n")}) {
    write_text_file(path, text);
    const Opened opened = open_lines(path, 0);
    CHECK(opened.status.code() == kExists);
    CHECK(opened.status.message().find("is no file of metrics") != std::string::npos);
    CHECK(read_text_file(path) == text);
  }
  CHECK_FALSE(open_lines(scratch / "absent/run.jsonl", 0).status.ok());
  CHECK(open_lines("/dev/null", 0).status.ok());
}

TEST_CASE("series_of_any_length_are_bounded_and_keep_their_sums") {
  RunSeries series;
  constexpr int64_t kSteps = 10001;
  double losses = 0;
  for (int64_t i = 1; i <= kSteps; ++i) {
    series.add_step(
        {.step = i, .loss = static_cast<double>(i), .lr = 1, .grad_norm = 1, .seconds = 0.5, .tokens = 8});
    losses += static_cast<double>(i);
    if (i % 2 == 0) series.add_line({{"kind", "evaluation"}, {"step", i}});
    if (i % 100 == 0) series.add_line({{"kind", "sample"}, {"step", i}});
  }
  const Json json = series.to_json();
  const Json& steps = json["steps"];
  CHECK(steps["step"].size() <= 2000);
  CHECK(steps["step"].size() > 900);
  CHECK(steps["step"].back() == kSteps);
  CHECK(steps["loss_low"].front() == 1);
  CHECK(steps["loss_high"].back() == kSteps);
  int64_t count = 0;
  double sum = 0;
  for (size_t i = 0; i < steps["step"].size(); ++i) {
    count += steps["count"][i].get<int64_t>();
    sum += steps["loss"][i].get<double>() * steps["count"][i].get<double>();
    CHECK(steps["tokens_per_second"][i] == 16);
  }
  CHECK(count == kSteps);
  CHECK(std::abs(sum / losses - 1) < 1e-6);  // columns have seven digits
  CHECK(json["evaluations"].size() <= 2000);
  CHECK(json["evaluations"].back()["step"] == kSteps - 1);
  CHECK(json["samples"].size() == 40);
  CHECK(json["samples"].front()["step"] == 100);
  CHECK(json["samples"].back()["step"] == 10000);
}

TEST_CASE("a_pages_data_cannot_end_its_element") {
  const Json run = {{"header", {{"model", "</script><script>alert(1)</script>"}, {"data", "<!-- \xff"}}}};
  const std::string page = run_page(run);
  CHECK(page.find("alert(1)</script>") == std::string::npos);
  const std::string begin = "<script type=\"application/json\" id=\"run\">";
  const size_t at = page.find(begin) + begin.size();
  const Result<Json> back = parse_json(page.substr(at, page.find("</script>", at) - at), "page");
  REQUIRE(back.ok());
  CHECK((*back)["header"]["model"] == run["header"]["model"]);
  // Nothing is fetched.
  for (const char* word : {"src=", "href=", "@import", "url("}) CHECK(page.find(word) == std::string::npos);
}

}  // namespace
}  // namespace tessera
