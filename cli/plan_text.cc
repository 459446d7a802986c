#include "plan_text.h"

#include <algorithm>
#include <cstdio>

namespace cli {

namespace {

std::string padded(std::string text, size_t width) {
  if (text.size() < width) text.append(width - text.size(), ' ');
  return text;
}

std::string right(const std::string& text, size_t width) {
  return text.size() < width ? std::string(width - text.size(), ' ') + text : text;
}

constexpr size_t kNameWidth = 20;

void print_share(std::ostream& out, const std::string& name, const std::string& amount, double share,
                 const std::string& note = {}, size_t width = kNameWidth) {
  constexpr double kBar = 28;
  const auto length = static_cast<size_t>(std::max(0.0, share) * kBar + 0.5);
  out << "  " << padded(name, width) << right(amount, 12)
      << right(share > 0 && share < 0.0005 ? "0.0 %" : percent_text(share), 8) << "  "
      << std::string(std::min<size_t>(length, 28), '#') << (note.empty() ? "" : "  " + note) << '\n';
}

// "communication dp", "prefill: compute".
std::string name_of(const Json& share) {
  std::string name = share["cause"].get<std::string>();
  if (name == "caches") name = "keys and values";
  if (const std::string axis = share["axis"].get<std::string>(); !axis.empty()) name += " " + axis;
  return share.contains("phase") ? share["phase"].get<std::string>() + ": " + name : name;
}

void print_time(std::ostream& out, const Json& explanation) {
  const double step = explanation["step_seconds"].get<double>();
  const std::string critical = explanation["critical"].get<std::string>();
  out << "time       of " << critical
      << (explanation["devices"].get<int64_t>() == 1 || critical.starts_with("each")
              ? ""
              : ", which finishes last")
      << '\n';
  size_t width = kNameWidth;
  for (const Json& share : explanation["time"]) width = std::max(width, name_of(share).size());
  for (const Json& share : explanation["time"]) {
    const std::string name = name_of(share);
    const double hidden = share["hidden_seconds"].get<double>();
    const bool tells = share["cause"] == "communication" && hidden > 0;
    print_share(out, name, seconds_text(share["seconds"].get<double>()),
                step > 0 ? share["seconds"].get<double>() / step : 0,
                tells ? seconds_text(hidden) + " more hidden" : "", width);
  }
}

void print_memory(std::ostream& out, const Json& explanation) {
  const Json& peak = explanation["peak"];
  const auto bytes = explanation["memory_bytes"].get<int64_t>();
  out << "memory     " << bytes_text(bytes) << " (" << bytes << " bytes)";
  if (explanation.contains("memory_limit"))
    out << " of " << bytes_text(explanation["memory_limit"].get<int64_t>());
  out << " on " << peak["device"].get<std::string>() << ", fullest at ";
  // Passes are counted from one; instructions are numbered as in the printed program.
  const auto at = peak["instruction"].get<int64_t>();
  if (at >= 0)
    out << (explanation["lowered"].get<bool>() ? "instruction " + std::to_string(at)
                                               : "pass " + std::to_string(at + 1))
        << " of " << peak["instructions"].get<int64_t>() << ": ";
  out << peak["what"].get<std::string>() << '\n';
  if (explanation["lowered"].get<bool>()) {
    constexpr size_t kMostBuffers = 4;
    std::string largest;
    for (size_t i = 0; i < peak["largest"].size() && i < kMostBuffers; ++i)
      largest += (i > 0 ? ", " : "") + peak["largest"][i]["name"].get<std::string>() + " " +
                 bytes_text(peak["largest"][i]["bytes"].get<int64_t>());
    if (!largest.empty()) out << "  largest there: " << largest << '\n';
  }
  for (const Json& share : explanation["memory"]) {
    const std::string tier = share["tier"].get<std::string>();
    const auto held = share["bytes"].get<int64_t>();
    if (tier == "device")
      print_share(out, share["cause"].get<std::string>(), bytes_text(held),
                  static_cast<double>(held) / static_cast<double>(std::max<int64_t>(1, bytes)));
    else
      out << "  " << padded(share["cause"].get<std::string>() + " (" + tier + ")", 20)
          << right(bytes_text(held), 12) << '\n';
  }
}

void print_blocks(std::ostream& out, const Json& explanation, bool trains) {
  constexpr size_t kMostBlocks = 10, kMostOps = 8;
  const Json& blocks = explanation["blocks"];
  // Printed only where it differs or could.
  bool staged = false, saves = false;
  for (const Json& block : blocks) {
    staged = staged || block["stage"] != blocks[0]["stage"];
    saves = saves || block["recompute"] != "none";
  }
  out << "decisions  how each operation is split over the mesh"
      << (staged || !trains || saves ? "" : "; nothing is recomputed") << '\n';
  for (size_t i = 0; i < blocks.size(); ++i) {
    if (i == kMostBlocks) {
      out << "  and " << blocks.size() - i << " more (--json and --report have all)\n";
      break;
    }
    const Json& block = blocks[i];
    const std::string name = block["name"].get<std::string>();
    std::vector<std::string> notes;
    if (staged && name.find("stage") == std::string::npos)
      notes.push_back("stage " + std::to_string(block["stage"].get<int64_t>()));
    if (block["recompute"] != "none")
      notes.push_back("recomputed: " + block["recompute"].get<std::string>());
    else if (saves)
      notes.emplace_back("nothing recomputed");
    if (block["offloaded"].get<int64_t>() > 0)
      notes.push_back(std::to_string(block["offloaded"].get<int64_t>()) + " offloaded");
    if (block["chunks"].get<int64_t>() > 1)
      notes.push_back(std::to_string(block["chunks"].get<int64_t>()) + " chunks");
    std::string line;
    for (const std::string& note : notes) line += (line.empty() ? "" : ", ") + note;
    out << "  " << (line.empty() ? name : padded(name, 20) + "  " + line) << '\n';
    // Blocks of one assignment share a line; a repetition of the previous block is skipped.
    if (i > 0 && block["ops"] == blocks[i - 1]["ops"]) continue;
    std::vector<std::pair<std::string, std::string>> groups;  // assignment -> operations
    for (const Json& op : block["ops"]) {
      const std::string how = op[1].get<std::string>(), what = op[0].get<std::string>();
      const auto known =
          std::find_if(groups.begin(), groups.end(), [&](const auto& it) { return it.first == how; });
      if (known == groups.end())
        groups.emplace_back(how, what);
      else if (known->second.size() < 90)
        known->second += ", " + what;
      else if (!known->second.ends_with("..."))
        known->second += ", ...";
    }
    for (size_t g = 0; g < groups.size() && g < kMostOps; ++g)
      out << "    " << groups[g].first << ": " << groups[g].second << '\n';
  }
}

// "loses 42 ms (4.1 %)"; of throughput "loses 610 tokens/s (4.1 %)".
std::string loss_text(const Json& explanation, const Json& other) {
  const double step = explanation["step_seconds"].get<double>();
  if (explanation.contains("serving") && explanation["serving"]["objective"] == "throughput") {
    const double all = explanation["serving"]["tokens_per_second"].get<double>();
    const double lost = all - other["tokens_per_second"].get<double>();
    return "loses " + rate_text(lost) + " tokens/s (" + percent_text(all > 0 ? lost / all : 0) + ")";
  }
  const double lost = other["loses_seconds"].get<double>();
  if (lost == 0) return "as fast";
  if (lost < 0)
    return "predicted " + seconds_text(-lost) + " faster, " +
           (explanation["lowered"].get<bool>() ? "not among those measured" : "by no more than --within");
  return "loses " + seconds_text(lost) + " (" + percent_text(step > 0 ? lost / step : 0) + ")";
}

void print_runners_up(std::ostream& out, const Json& explanation) {
  constexpr size_t kMost = 8;
  const Json& others = explanation["runners_up"];
  if (others.empty()) return;
  out << "runners-up\n";
  size_t width = 20;
  for (size_t i = 0; i < others.size() && i < kMost; ++i)
    width = std::max(width, std::min<size_t>(60, others[i]["strategy"].get<std::string>().size()));
  for (size_t i = 0; i < others.size() && i < kMost; ++i) {
    const Json& other = others[i];
    out << "  " << padded(other["strategy"].get<std::string>(), width) << "  ";
    const std::string why = other["why"].get<std::string>();
    const auto over = other["over_bytes"].get<int64_t>();
    const double step = other["step_seconds"].get<double>();
    if (over > 0)
      out << bytes_text(over) << " too large" << (step > 0 ? ", would take " + seconds_text(step) : "")
          << (explanation["lowered"].get<bool>() || why.empty() ? ""
                                                                : " (" + why.substr(0, why.find(':')) + ")");
    else if (!why.empty())
      out << "no: " << why;
    else
      out << loss_text(explanation, other) << ", " << bytes_text(other["bytes"].get<int64_t>());
    out << '\n';
  }
  if (others.size() > kMost) out << "  and " << others.size() - kMost << " more (--json and --report)\n";
}

}  // namespace

std::string seconds_text(double seconds) {
  char text[40];
  if (seconds >= 1 || seconds == 0)
    std::snprintf(text, sizeof text, "%.4g s", seconds);
  else if (seconds >= 1e-3)
    std::snprintf(text, sizeof text, "%.4g ms", seconds * 1e3);
  else
    std::snprintf(text, sizeof text, "%.4g us", seconds * 1e6);
  return text;
}

std::string rate_text(double per_second) {
  char text[40];
  std::snprintf(text, sizeof text, per_second >= 1000 ? "%.0f" : "%.4g", per_second);
  return text;
}

std::string percent_text(double share) {
  if (share <= 0) return "0 %";
  if (share < 0.0005) return "under 0.1 %";
  char text[32];
  std::snprintf(text, sizeof text, share < 0.0995 ? "%.1f %%" : "%.0f %%", 100 * share);
  return text;
}

std::string counted(int64_t count, const std::string& noun) {
  return std::to_string(count) + " " + noun + (count == 1 ? "" : "s");
}

void print_sentences(std::ostream& out, std::string label, const Json& sentences) {
  for (const Json& sentence : sentences) {
    out << padded(label, 11) << sentence.get<std::string>() << '\n';
    label.clear();
  }
}

void print_explanation(std::ostream& out, const Json& explanation, bool trains) {
  if (explanation.contains("words")) print_sentences(out, "in words", explanation["words"]);
  print_time(out, explanation);
  print_memory(out, explanation);
  print_blocks(out, explanation, trains);
  print_runners_up(out, explanation);
  print_sentences(out, "reasons", explanation["reasons"]);
}

}  // namespace cli
