#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <vector>

#include "serialize/training_data/token_file.h"
#include "tests/fuzz/loaders.h"
#include "tests/fuzz/seeds.h"

namespace tessera::fuzz {
namespace {

constexpr size_t kHeader = 56;

// Files of tokens; most mutants have checksums that are right again.
class TokenFileLoader final : public Loader {
 public:
  TokenFileLoader()
      : path_((std::filesystem::temp_directory_path() / ("tessera_tokens_" + std::to_string(getpid())))
                  .string()) {
    auto writer = TokenFileWriter::create(path_);
    check_ok(writer.status());
    for (int32_t i = 1; i < 4; ++i) {
      TokenRecord record;
      record.row = static_cast<uint32_t>(i);
      const auto count = static_cast<size_t>(i) + 1;
      check_ok(writer->add(
          {std::vector<int32_t>(count, i), std::vector<uint8_t>(count, 1), 1, ExampleRole::kPlain}, record));
    }
    check_ok(writer->finish("{}", true).status());
    std::ifstream in(path_, std::ios::binary);
    seed_.assign(std::istreambuf_iterator<char>(in), {});
  }
  ~TokenFileLoader() override { unlink(path_.c_str()); }
  std::string_view name() const override { return "file of tokens"; }
  Outcome run(Random& random) override {
    std::string file = seed_;
    for (uint64_t left = 1 + random.below(3); left > 0; --left) {
      const size_t at = random.below(random.one_in(2) ? kHeader : file.size());
      if (random.one_in(2))
        file[at] = static_cast<char>(random.next());
      else if (const uint64_t value = random.next() >> random.below(64); at + sizeof value <= file.size())
        std::memcpy(file.data() + at, &value, sizeof value);
    }
    if (random.one_in(8)) file.resize(random.below(file.size()));
    if (!random.one_in(8)) set_checksums(file);
    std::ofstream(path_, std::ios::binary) << file;
    return {file.size() >= kHeader && file.starts_with("TSRTOKEN"), use()};
  }

 private:
  Status use() const {
    TSR_ASSIGN_OR_RETURN(const auto file, TokenFile::open(path_));
    std::vector<uint32_t> tokens;
    for (const TokenRecord& record : file->records()) {
      tokens.resize(record.count);
      TSR_RETURN_IF_ERROR(file->read(record, 0, tokens));
      for (const uint32_t token : tokens)
        TSR_CHECK(token_id(token) <= file->largest_token(), "a token beyond the largest");
    }
    return {};
  }
  static void set_checksums(std::string& file) {
    if (file.size() < kHeader) return;
    uint64_t about = 0;
    std::memcpy(&about, file.data() + 32, sizeof about);
    if (about > file.size() - kHeader) return;
    const auto hashed = [&file](std::initializer_list<std::pair<size_t, size_t>> parts) {
      HashStream hash;
      for (const auto& [begin, end] : parts)
        hash.add(std::as_bytes(std::span(file)).subspan(begin, end - begin));
      return hash.digest();
    };
    const uint64_t contents = hashed({{kHeader, file.size() - about}});
    std::memcpy(file.data() + 40, &contents, sizeof contents);
    const uint64_t checksum = hashed({{0, 48}, {file.size() - about, file.size()}});
    std::memcpy(file.data() + 48, &checksum, sizeof checksum);
  }

  std::string path_, seed_;
};

}  // namespace

std::unique_ptr<Loader> token_file_loader() { return std::make_unique<TokenFileLoader>(); }

}  // namespace tessera::fuzz
