#include "serialize/run_log/line_file.h"
#include "serialize/run_log/run_series.h"
#include "tests/fuzz/loaders.h"
#include "tests/fuzz/seeds.h"

namespace tessera::fuzz {
namespace {

constexpr int64_t kResumedStep = 3;

// Metrics of a run that is resumed: what is kept goes to the page's series, and ends in a whole line.
class RunLinesLoader final : public Loader {
 public:
  std::string_view name() const override { return "run lines"; }
  Outcome run(Random& random) override {
    std::string text(kHeader);
    for (const std::string_view each : kLines) {
      std::string line(each);
      if (random.one_in(3)) mutate_text(line, random);
      if (random.one_in(12)) line.resize(random.below(line.size() + 1));
      if (!random.one_in(12)) text += line + "\n";
    }
    if (random.one_in(6)) mutate_text(text, random);
    if (random.one_in(6)) text.resize(random.below(text.size() + 1));
    const std::string path = folder_ / "run.jsonl";
    write_file(path, text);
    const bool past_header = text.starts_with(kHeader);
    RunSeries series;
    {
      const auto keep = [&series](const Json& line) { series.add_line(line); };
      Result<LineFile> file = LineFile::open(path, kResumedStep, keep);
      if (!file.ok()) return {past_header, file.status()};
      if (const Status added = file->append({{"kind", "end"}}); !added.ok()) return {past_header, added};
    }
    (void)dump(series.to_json());
    const std::string kept = read_file(path), added = "{\"kind\":\"end\"}\n";
    if (!kept.ends_with(added) || !text.starts_with(kept.substr(0, kept.size() - added.size())))
      return {past_header, Status(StatusCode::kInternal, "lines that the file did not have")};
    return {past_header, {}};
  }

 private:
  static constexpr std::string_view kHeader =
      "{\"kind\":\"header\",\"format\":\"tessera-run\",\"version\":1,\"steps\":9}\n";
  static constexpr std::string_view kLines[] = {
      R"({"kind":"step","step":1,"loss":2.5,"lr":0.001,"grad_norm":1.5,"seconds":0.25,"tokens":64,"tokens_per_second":256})",
      R"({"kind":"value","step":1,"name":"rewards/margin","value":0.5})",
      R"({"kind":"step","step":2,"loss":null,"lr":0.001,"grad_norm":1.5,"seconds":0.25,"tokens":64})",
      R"({"kind":"evaluation","step":2,"eval_loss":2.25,"perplexity":9.5,"accuracy":0.5})",
      R"({"kind":"sample","step":2,"prompt":"Once","text":" upon"})",
      R"({"kind":"checkpoint","step":2,"path":"x.checkpoint","time":"2026-01-01T00:00:00Z"})",
      R"({"kind":"resume","step":2,"time":"2026-01-01T00:00:00Z","settings":{"batch":"4"}})",
      R"({"kind":"step","step":3,"loss":2.125,"lr":0.001,"grad_norm":1.5,"seconds":0.25,"tokens":64})",
      R"({"kind":"step","step":4,"loss":2,"lr":0.001,"grad_norm":1.5,"seconds":0.25,"tokens":64})",
  };

  ScratchFolder folder_;
};

}  // namespace

std::unique_ptr<Loader> run_lines_loader() { return std::make_unique<RunLinesLoader>(); }

}  // namespace tessera::fuzz
