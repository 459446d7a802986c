#include <cmath>
#include <cstring>
#include <vector>

#include "serialize/hash_stream.h"
#include "serialize/training_data/reference_file.h"
#include "tests/fuzz/loaders.h"
#include "tests/fuzz/seeds.h"

namespace tessera::fuzz {
namespace {

constexpr size_t kHeaderBytes = 40, kChecksumAt = 32;
constexpr uint64_t kKey = 0x1234;
constexpr int64_t kRows = 5;

// Files of reference log probabilities; most mutants have a checksum that is right again.
class ReferenceFileLoader final : public Loader {
 public:
  ReferenceFileLoader() {
    std::vector<double> values;
    for (int64_t i = 0; i < 2 * kRows; ++i) values.push_back(-1.5 * static_cast<double>(i));
    check_ok(write_reference_file(path(), kKey, values));
    seed_ = read_file(path());
  }
  std::string_view name() const override { return "reference"; }
  Outcome run(Random& random) override {
    std::string file = seed_;
    for (uint64_t left = random.below(4); left > 0; --left) {
      const size_t at = random.below(random.one_in(2) ? kHeaderBytes : file.size());
      const uint64_t value = random.one_in(4) ? 0x7ff8000000000000 : random.next() >> random.below(64);
      if (random.one_in(2) || at + sizeof value > file.size())
        file[at] = static_cast<char>(random.next());
      else
        std::memcpy(file.data() + at, &value, sizeof value);
    }
    if (random.one_in(8)) file.resize(random.below(2 * file.size()));
    if (!random.one_in(8)) set_checksum(file);
    write_file(path(), file);
    const Result<std::vector<double>> values = read_reference_file(path(), kKey, kRows);
    const bool past_header = file.size() >= kHeaderBytes && file.starts_with("TSRREFLP");
    if (!values.ok()) return {past_header, values.status()};
    bool is_sound = std::ssize(*values) == 2 * kRows;
    for (const double value : *values) is_sound = is_sound && std::isfinite(value);
    return {past_header, is_sound ? Status() : Status(StatusCode::kInternal, "accepted without its values")};
  }

 private:
  std::string path() const { return folder_ / "x.reference"; }
  static void set_checksum(std::string& file) {
    if (file.size() < kHeaderBytes) return;
    HashStream hash;
    const auto bytes = std::as_bytes(std::span(file));
    hash.add(bytes.first(kChecksumAt));
    hash.add(bytes.subspan(kHeaderBytes));
    const uint64_t checksum = hash.digest();
    std::memcpy(file.data() + kChecksumAt, &checksum, sizeof checksum);
  }

  ScratchFolder folder_;
  std::string seed_;
};

}  // namespace

std::unique_ptr<Loader> reference_file_loader() { return std::make_unique<ReferenceFileLoader>(); }

}  // namespace tessera::fuzz
