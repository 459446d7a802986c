#include <cstring>
#include <iterator>
#include <string_view>
#include <vector>

#include "serialize/envelope.h"
#include "serialize/sequence_file.h"
#include "tests/fuzz/loaders.h"
#include "tests/fuzz/seeds.h"
#include "tests/serialize/gguf_builder.h"

namespace tessera::fuzz {
namespace {

using testing::source_of;

Status use_sequence(const std::string& file) {
  TSR_ASSIGN_OR_RETURN(SequenceFileReader reader, SequenceFileReader::open(source_of(file)));
  for (int64_t i = 0; i < reader.header().cached; ++i) {
    std::vector<std::byte> row(static_cast<size_t>(reader.header().row_bytes(i)));
    TSR_RETURN_IF_ERROR(reader.read_rows(row));
  }
  std::vector<std::byte> states(static_cast<size_t>(reader.header().state_bytes()));
  TSR_RETURN_IF_ERROR(reader.read_rows(states));
  return reader.check();
}

// Sequences of servers; most mutants have a checksum that is right again.
class SequenceLoader final : public Loader {
 public:
  SequenceLoader() : seeds_{seed(1), seed(2), seed(3)} {}
  std::string_view name() const override { return "sequence"; }
  Outcome run(Random& random) override {
    const Seed& seed = seeds_[random.below(std::size(seeds_))];
    std::string file = seed.file;
    for (uint64_t left = 1 + random.below(3); left > 0; --left) {
      const size_t at = random.below(random.one_in(4) ? file.size() : seed.numbers);
      if (random.one_in(2))
        file[at] = static_cast<char>(random.next());
      else if (const uint64_t value = random.next() >> random.below(64); at + sizeof value <= file.size())
        std::memcpy(file.data() + at, &value, sizeof value);
    }
    if (random.one_in(8)) file.resize(random.below(file.size()));
    if (!random.one_in(4)) set_size(file);
    if (!random.one_in(8)) set_checksum(file);
    const Status status = use_sequence(file);
    return {file.size() >= 56 && file.starts_with("TSRSEQNC"), status};
  }

 private:
  struct Seed {
    std::string file;
    size_t numbers = 0;  // bytes before the tokens
  };

  // A file of a version; its second state, with a window, has a row of the last position only from version 2 on, and from 3 on
  // there are states of a recurrent layer.
  static Seed seed(uint32_t version) {
    const bool has_window = version >= 2, has_rows = version >= 3;
    Seed made;
    std::string& file = made.file;
    const auto put = [&](auto value) { file.append(reinterpret_cast<const char*>(&value), sizeof value); };
    file = "TSRSEQNC";
    for (const uint32_t value : {version, uint32_t{2}}) put(value);  // version, states
    for (const uint64_t value : {0, 9, 7, 3, 2}) put(value);         // bytes, model, root, tokens, cached
    if (has_window) put(uint64_t{1});
    if (has_rows) put(uint64_t{2});
    struct State {
      std::string_view name, type;
      uint64_t width, is_window;
    };
    for (const State& state : {State{"k_pages", "f32", 4, 0}, State{"v_pages", "q8_0", 32, 1}}) {
      put(static_cast<uint32_t>(state.name.size()));
      put(static_cast<uint32_t>(state.type.size()));
      put(uint64_t{2});
      put(state.width);
      if (has_window) put(state.is_window);
      file += state.name;
      file += state.type;
    }
    for (const std::string_view name : {"conv_rows", "scan_rows"}) {
      if (!has_rows) continue;
      put(static_cast<uint32_t>(name.size()));
      put(uint32_t{3});
      for (const uint64_t value : {2, 3, 5}) put(value);  // rank, extents
      file += name;
      file += "f32";
    }
    made.numbers = file.size();
    for (const int32_t token : {5, 6, 7}) put(token);
    const size_t rows = 2 * 2 * 4 * sizeof(float) + (has_window ? 1 : 2) * 2 * 34;
    const size_t states = has_rows ? 2 * 3 * 5 * sizeof(float) : 0;
    file += std::string(rows + states + sizeof(uint64_t), 'x');
    set_size(file);
    set_checksum(file);
    check_ok(use_sequence(file));
    return made;
  }

  static void set_size(std::string& file) {
    if (const uint64_t size = file.size(); size >= 24) std::memcpy(file.data() + 16, &size, sizeof size);
  }
  static void set_checksum(std::string& file) {
    if (file.size() < sizeof(uint64_t)) return;
    const uint64_t hash = xxh3(std::as_bytes(std::span(file)).first(file.size() - sizeof(uint64_t)));
    std::memcpy(file.data() + file.size() - sizeof hash, &hash, sizeof hash);
  }

  const Seed seeds_[3];
};

}  // namespace

std::unique_ptr<Loader> sequence_loader() { return std::make_unique<SequenceLoader>(); }

}  // namespace tessera::fuzz
