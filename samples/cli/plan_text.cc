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

std::string percent(double share) {
  char text[32];
  std::snprintf(text, sizeof text, share < 0.0995 ? "%.1f %%" : "%.0f %%", 100 * share);
  return text;
}

void print_share(std::ostream& out, const std::string& name, const std::string& amount, double share,
                 const std::string& note = {}) {
  constexpr double kBar = 28;
  const auto length = static_cast<size_t>(std::max(0.0, share) * kBar + 0.5);
  out << "  " << padded(name, 20) << right(amount, 12) << right(percent(share), 8) << "  "
      << std::string(std::min<size_t>(length, 28), '#') << (note.empty() ? "" : "  " + note) << '\n';
}

void print_time(std::ostream& out, const Json& explanation) {
  const double step = explanation["step_seconds"].get<double>();
  out << "time       of " << explanation["critical"].get<std::string>() << ", which finishes last\n";
  for (const Json& share : explanation["time"]) {
    std::string name = share["cause"].get<std::string>();
    if (const std::string axis = share["axis"].get<std::string>(); !axis.empty()) name += " " + axis;
    const double hidden = share["hidden_seconds"].get<double>();
    const bool tells = share["cause"] == "communication" && hidden > 0;
    print_share(out, name, seconds_text(share["seconds"].get<double>()),
                step > 0 ? share["seconds"].get<double>() / step : 0,
                tells ? seconds_text(hidden) + " more hidden" : "");
  }
}

void print_memory(std::ostream& out, const Json& explanation) {
  const Json& peak = explanation["peak"];
  const auto bytes = explanation["memory_bytes"].get<int64_t>();
  out << "memory     " << bytes_text(bytes) << " (" << bytes << " bytes)";
  if (explanation.contains("memory_limit"))
    out << " of " << bytes_text(explanation["memory_limit"].get<int64_t>());
  out << " on " << peak["device"].get<std::string>() << ", fullest at ";
  if (peak["instruction"].get<int64_t>() >= 0)
    out << (explanation["lowered"].get<bool>() ? "instruction " : "pass ")
        << peak["instruction"].get<int64_t>() << " of " << peak["instructions"].get<int64_t>() << " ("
        << peak["what"].get<std::string>() << ")";
  out << '\n';
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

void print_blocks(std::ostream& out, const Json& explanation) {
  constexpr size_t kMostBlocks = 10, kMostOps = 8;
  out << "decisions\n";
  const Json& blocks = explanation["blocks"];
  for (size_t i = 0; i < blocks.size(); ++i) {
    if (i == kMostBlocks) {
      out << "  and " << blocks.size() - i << " more (--json and --report have all)\n";
      break;
    }
    const Json& block = blocks[i];
    out << "  " << padded(block["name"].get<std::string>(), 20);
    out << "  stage " << block["stage"].get<int64_t>() << ", recomputed "
        << block["recompute"].get<std::string>();
    if (block["offloaded"].get<int64_t>() > 0) out << ", offloaded " << block["offloaded"].get<int64_t>();
    if (block["chunks"].get<int64_t>() > 1) out << ", " << block["chunks"].get<int64_t>() << " chunks";
    out << '\n';
    // Those of one assignment are one line; blocks that repeat what the one before has, none.
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

void print_runners_up(std::ostream& out, const Json& explanation) {
  constexpr size_t kMost = 8;
  const Json& others = explanation["runners_up"];
  if (others.empty()) return;
  out << "runners-up\n";
  const double step = explanation["step_seconds"].get<double>();
  for (size_t i = 0; i < others.size() && i < kMost; ++i) {
    const Json& other = others[i];
    out << "  " << padded(other["strategy"].get<std::string>(), 34) << "  ";
    const std::string why = other["why"].get<std::string>();
    const auto over = other["over_bytes"].get<int64_t>();
    if (over > 0)
      out << bytes_text(over) << " too large"
          << (other["step_seconds"].get<double>() > 0
                  ? ", " + seconds_text(other["step_seconds"].get<double>())
                  : "")
          << (explanation["lowered"].get<bool>() || why.empty() ? ""
                                                                : " (" + why.substr(0, why.find(':')) + ")");
    else if (!why.empty())
      out << "no: " << why;
    else
      out << "loses " << seconds_text(other["loses_seconds"].get<double>()) << " ("
          << percent(step > 0 ? other["loses_seconds"].get<double>() / step : 0) << "), "
          << bytes_text(other["bytes"].get<int64_t>());
    out << '\n';
  }
  if (others.size() > kMost) out << "  and " << others.size() - kMost << " more\n";
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

void print_explanation(std::ostream& out, const Json& explanation) {
  print_time(out, explanation);
  print_memory(out, explanation);
  print_blocks(out, explanation);
  print_runners_up(out, explanation);
  for (const Json& reason : explanation["reasons"]) out << "because    " << reason.get<std::string>() << '\n';
}

}  // namespace cli
