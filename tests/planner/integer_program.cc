#include "tests/planner/integer_program.h"

#include <doctest/doctest.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>

#include "graph/base/text.h"

namespace tessera::testing {

namespace {

// CPLEX's LP format, one term a line: readers limit the length of lines.
class LpFile {
 public:
  explicit LpFile(const DecisionGraph& graph, int64_t budget) {
    std::string ones, ties, memory, binaries, zeros;
    objective_ = "Minimize\n time:\n";
    const auto cost = [&](const std::string& name, const Tradeoff& price) {
      if (!std::isfinite(price.time_s)) {
        zeros += format(" {} = 0\n", name);
        return;
      }
      objective_ += format(" + {} {}\n", price.time_s, name);
      memory += format(" + {} {}\n", price.bytes, name);
    };
    for (size_t v = 0; v < graph.nodes.size(); ++v) {
      ones += format(" one{}:\n", v);
      for (size_t w = 0; w < graph.nodes[v].size(); ++w) {
        cost(node(v, w), graph.nodes[v][w]);
        ones += format(" + {}\n", node(v, w));
        binaries += format(" {}\n", node(v, w));
      }
      ones += " = 1\n";
    }
    for (size_t e = 0; e < graph.edges.size(); ++e) {
      const DecisionEdge& edge = graph.edges[e];
      const auto from = static_cast<size_t>(edge.from), to = static_cast<size_t>(edge.to);
      const size_t rows = graph.nodes[from].size(), columns = graph.nodes[to].size();
      const auto product = [&](size_t a, size_t b) { return format("y{}_{}_{}", e, a, b); };
      for (size_t a = 0; a < rows; ++a)
        for (size_t b = 0; b < columns; ++b) cost(product(a, b), edge.costs[a * columns + b]);
      for (size_t a = 0; a < rows; ++a) {
        ties += format(" r{}_{}:\n", e, a);
        for (size_t b = 0; b < columns; ++b) ties += format(" + {}\n", product(a, b));
        ties += format(" - {} = 0\n", node(from, a));
      }
      for (size_t b = 0; b < columns; ++b) {
        ties += format(" c{}_{}:\n", e, b);
        for (size_t a = 0; a < rows; ++a) ties += format(" + {}\n", product(a, b));
        ties += format(" - {} = 0\n", node(to, b));
      }
    }
    text_ = objective_ + "Subject To\n" + ones + ties;
    if (budget != INT64_MAX) text_ += format(" memory:\n{} <= {}\n", memory, budget);
    text_ += "Bounds\n" + zeros + "Binaries\n" + binaries + "End\n";
  }
  const std::string& text() const { return text_; }

 private:
  static std::string node(size_t v, size_t w) { return format("x{}_{}", v, w); }
  std::string objective_, text_;
};

std::string read(const std::filesystem::path& path) {
  std::ostringstream content;
  content << std::ifstream(path).rdbuf();
  return content.str();
}

}  // namespace

bool cbc_is_installed() { return std::system("cbc -quit >/dev/null 2>&1") == 0; }

IntegerProgram solve_with_cbc(const DecisionGraph& graph, int64_t budget_bytes) {
  std::string folder = (std::filesystem::temp_directory_path() / "tessera-cbc-XXXXXX").string();
  REQUIRE(mkdtemp(folder.data()) != nullptr);
  std::ofstream(folder + "/model.lp") << LpFile(graph, budget_bytes).text();
  const std::string command =
      format("cd '{}' && cbc model.lp ratio 0 allow 0 solve solution answer.txt quit >log.txt 2>&1", folder);
  const int exit_code = std::system(command.c_str());
  const std::string answer = read(folder + "/answer.txt"), log = read(folder + "/log.txt");
  std::filesystem::remove_all(folder);
  REQUIRE_MESSAGE(exit_code == 0, log);
  IntegerProgram result;
  constexpr std::string_view kOptimal = "Optimal - objective value",
                             kRelaxed = "Continuous objective value is";
  if (answer.starts_with(kOptimal)) {
    result.feasible = true;
    result.time_s = std::strtod(answer.c_str() + kOptimal.size(), nullptr);
  } else {
    REQUIRE_MESSAGE(answer.find("nfeasible") != std::string::npos, log);
  }
  const size_t relaxed = log.find(kRelaxed);
  result.relaxed_s = relaxed == std::string::npos
                         ? result.time_s
                         : std::strtod(log.c_str() + relaxed + kRelaxed.size(), nullptr);
  return result;
}

}  // namespace tessera::testing
