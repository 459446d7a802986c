#include "parallel/strategy/strategy.h"

#include <algorithm>
#include <optional>
#include <span>
#include <vector>

#include "graph/base/nearest_hint.h"
#include "graph/base/text.h"

namespace tessera {

namespace {

constexpr std::string_view kExample = "an example: \"dp=2,tp=2,sp,zero=1,mb=4\"";
constexpr int64_t kMany = 1 << 16;

constexpr std::string_view kForms[] = {"1d", "2d", "2.5d", "3d"};
constexpr std::string_view kContexts[] = {"", "ring", "ulysses", "gather"};
constexpr std::string_view kSchedules[] = {"", "gpipe", "1f1b", "interleaved", "zb-h1", "zb-h2", "zb-v"};
constexpr std::string_view kRecompute[] = {"none", "full", "auto", "some"};
constexpr std::string_view kTiers[] = {"device", "host", "file"};
constexpr std::string_view kOffloaded[] = {"params", "grads", "optimizer", "activations"};

Status wrong(std::string message) {
  return Status(StatusCode::kInvalidArgument, format("parallel: {}; {}", message, kExample));
}

int32_t nearest_divisor(int32_t whole, int32_t parts) {
  for (int32_t away = 1;; ++away)
    for (const int32_t it : {parts - away, parts + away})
      if (it >= 1 && it <= whole && whole % it == 0) return it;
}

Result<int32_t> count_of(std::string_view word, std::string_view value, int64_t least, int64_t most) {
  const auto number = parse_i64(value);
  if (number && *number >= least && *number <= most) return static_cast<int32_t>(*number);
  return wrong(format("{}={} where a number from {} to {} is wanted", word, value, least, most));
}

// Index of `value` in `known`; empty entries do not match.
Result<size_t> one_of(std::string_view word, std::string_view value,
                      std::span<const std::string_view> known) {
  std::vector<std::string> names;
  for (size_t i = 0; i < known.size(); ++i) {
    if (known[i].empty()) continue;
    if (known[i] == value) return i;
    names.emplace_back(known[i]);
  }
  return wrong(format("{} knows no '{}'{}; known: {}", word, value,
                      nearest_hint(value, names), join(names, ", ")));
}

// "a:b" -> a, b; the second is empty when there is no colon.
std::pair<std::string_view, std::string_view> split_at(std::string_view text, char at) {
  const size_t found = text.find(at);
  if (found == std::string_view::npos) return {text, {}};
  return {text.substr(0, found), text.substr(found + 1)};
}

class WordReader {
 public:
  Result<StrategyPins> read(std::string_view text) {
    text = trim(text);
    if (text.empty()) return pins_;
    if (text == "single") {
      pins_.dp = pins_.tp = true;
      return pins_;
    }
    for (const std::string& part : split(text, ',')) {
      const std::string_view trimmed = trim(part);
      const size_t equals = trimmed.find('=');
      const std::string_view word = trim(trimmed.substr(0, equals));
      std::optional<std::string_view> value;
      if (equals != std::string_view::npos) value = trim(trimmed.substr(equals + 1));
      TSR_RETURN_IF_ERROR(read_word(word, value));
    }
    TSR_RETURN_IF_ERROR(check());
    return pins_;
  }

 private:
  using Value = std::string_view;
  struct Word {
    std::string_view name;
    bool has_value;
    Status (WordReader::*read)(Value);
  };

  Status read_word(std::string_view word, std::optional<std::string_view> value) {
    static constexpr Word kWords[] = {
        {"dp", true, &WordReader::dp},           {"tp", true, &WordReader::tp},
        {"sp", false, &WordReader::sp},          {"cp", true, &WordReader::cp},
        {"ep", true, &WordReader::ep},           {"pp", true, &WordReader::pp},
        {"zero", true, &WordReader::zero},       {"mb", true, &WordReader::mb},
        {"chunks", true, &WordReader::chunks},   {"recompute", true, &WordReader::recompute},
        {"offload", true, &WordReader::offload}, {"keep", false, &WordReader::keep},
        {"owt", false, &WordReader::owt},
    };
    std::vector<std::string> known;
    for (const Word& candidate : kWords) {
      known.emplace_back(candidate.name);
      if (candidate.name != word) continue;
      if (candidate.has_value != value.has_value())
        return wrong(candidate.has_value ? format("{} wants a value", word)
                                         : format("{} stands alone, without '={}'", word, *value));
      if (std::ranges::find(seen_, word) != seen_.end()) return wrong(format("{} is given twice", word));
      seen_.emplace_back(word);
      return (this->*candidate.read)(value.value_or(""));
    }
    return wrong(format("unknown word '{}'{}", word, nearest_hint(word, known)));
  }

  Status dp(Value value) {
    TSR_ASSIGN_OR_RETURN(spec().dp, count_of("dp", value, 1, kMany));
    pins_.dp = true;
    return {};
  }
  Status ep(Value value) {
    TSR_ASSIGN_OR_RETURN(spec().ep, count_of("ep", value, 1, kMany));
    pins_.ep = true;
    return {};
  }
  Status sp(Value) {
    spec().sp = pins_.sp = true;
    return {};
  }
  Status keep(Value) {
    spec().keep = pins_.keep = true;
    return {};
  }
  Status owt(Value) {
    spec().owt = pins_.owt = true;
    return {};
  }
  Status mb(Value value) {
    TSR_ASSIGN_OR_RETURN(spec().micro_batch, count_of("mb", value, 1, kMany));
    pins_.micro_batch = true;
    return {};
  }
  Status chunks(Value value) {
    TSR_ASSIGN_OR_RETURN(spec().chunks, count_of("chunks", value, 1, kMany));
    pins_.chunks = true;
    return {};
  }

  Status tp(Value value) {
    pins_.tp = true;
    auto [form, sizes] = split_at(value, ':');
    if (value.find(':') == Value::npos) {
      TSR_ASSIGN_OR_RETURN(spec().tp, count_of("tp", value, 1, kMany));
      return {};
    }
    TSR_ASSIGN_OR_RETURN(const size_t which, one_of("tp", form, kForms));
    spec().form = static_cast<TensorForm>(which);
    const std::vector<std::string> parts = split(sizes, 'x');
    const size_t wanted = spec().form == TensorForm::k1d ? 1 : spec().form == TensorForm::k2d ? 2 : 3;
    if (parts.size() != wanted) return wrong(format("tp={} where {} is wanted", value, kShapes[which]));
    int64_t devices = 1;
    for (size_t i = 0; i < parts.size(); ++i) {
      TSR_ASSIGN_OR_RETURN(const int32_t size, count_of("tp=" + std::string(form), parts[i], 1, 1 << 8));
      devices *= size;
      if (spec().form != TensorForm::k1d) spec().grid[i] = size;
    }
    spec().tp = static_cast<int32_t>(devices);
    const auto& [x, y, z] = spec().grid;
    if (spec().form == TensorForm::k25d && x != y)
      return wrong(
          format("tp={} where the first two sides are equal; nearest: tp=2.5d:{}x{}x{}", value, x, x, z));
    if (spec().form == TensorForm::k3d && (x != y || y != z))
      return wrong(format("tp={} where all sides are equal; nearest: tp=3d:{}x{}x{}", value, x, x, x));
    return {};
  }

  Status cp(Value value) {
    pins_.cp = true;
    const auto [form, rest] = split_at(value, ':');
    TSR_ASSIGN_OR_RETURN(const size_t which, one_of("cp", form, kContexts));
    spec().context = static_cast<ContextForm>(which);
    const auto [size, order] = split_at(rest, ':');
    TSR_ASSIGN_OR_RETURN(spec().cp, count_of("cp=" + std::string(form), size, 1, kMany));
    if (order.empty()) return {};
    if (order != "contiguous" || spec().context == ContextForm::kUlysses)
      return wrong(
          format("cp={}; known: cp=ring:N, cp=ring:N:contiguous, cp=gather:N, "
                 "cp=gather:N:contiguous, cp=ulysses:N",
                 value));
    spec().zigzag = false;
    return {};
  }

  Status pp(Value value) {
    pins_.pp = true;
    const auto [size, rest] = split_at(value, ':');
    TSR_ASSIGN_OR_RETURN(spec().pp, count_of("pp", size, 1, kMany));
    const auto [name, stages] = split_at(rest, ':');
    ScheduleKind kind = ScheduleKind::k1F1B;
    if (!rest.empty()) {
      TSR_ASSIGN_OR_RETURN(const size_t which, one_of("pp", name, kSchedules));
      kind = static_cast<ScheduleKind>(which);
    }
    spec().virtual_stages = kind == ScheduleKind::kZbV ? 2 : 1;
    if (kind == ScheduleKind::kInterleaved) {
      TSR_ASSIGN_OR_RETURN(spec().virtual_stages, count_of("pp=interleaved", stages, 1, 1 << 10));
    } else if (!stages.empty()) {
      return wrong(format("pp={}: only interleaved takes a number of stages", value));
    }
    if (spec().pp > 1) spec().schedule = kind;
    if (spec().pp == 1) spec().virtual_stages = 1;
    return {};
  }

  Status zero(Value value) {
    pins_.zero = true;
    const auto [level, group] = split_at(value, ':');
    TSR_ASSIGN_OR_RETURN(spec().zero, count_of("zero", level, 0, 3));
    if (!group.empty()) {
      TSR_ASSIGN_OR_RETURN(spec().zero_group, count_of("zero group", group, 1, kMany));
    }
    return {};
  }

  Status recompute(Value value) {
    pins_.recompute = true;
    TSR_ASSIGN_OR_RETURN(const size_t which, one_of("recompute", value, kRecompute));
    spec().recompute = static_cast<RecomputeForm>(which);
    return {};
  }

  Status offload(Value value) {
    pins_.offload = true;
    if (value == "none") return {};
    spec().offload.automatic = value == "auto";
    if (spec().offload.automatic) return {};
    Tier* const fields[] = {&spec().offload.params, &spec().offload.grads, &spec().offload.optimizer,
                            &spec().offload.activations};
    for (const std::string& part : split(value, '+')) {
      const auto [what, where] = split_at(trim(part), '@');
      static constexpr std::string_view kKnown[] = {kOffloaded[0], kOffloaded[1], kOffloaded[2],
                                                    kOffloaded[3], "none",        "auto"};
      TSR_ASSIGN_OR_RETURN(const size_t which, one_of("offload", what, kKnown));
      if (which >= std::size(fields)) return wrong(format("offload={} goes with nothing else", what));
      size_t tier = static_cast<size_t>(Tier::kHost);
      if (!where.empty()) {
        static constexpr std::string_view kTo[] = {"", kTiers[1], kTiers[2]};
        TSR_ASSIGN_OR_RETURN(tier, one_of("offload=" + std::string(what), where, kTo));
      }
      if (*fields[which] != Tier::kDevice) return wrong(format("offload names {} twice", what));
      *fields[which] = static_cast<Tier>(tier);
    }
    return {};
  }

  // Checks combinations; only given options are pinned, except those meaningless alone.
  Status check() const {
    const StrategySpec& it = pins_.spec;
    int64_t devices = 1;
    for (const int32_t parts : {it.dp, it.tp, it.cp, it.ep, it.pp})
      devices = std::min(devices * parts, 2 * kMany);
    if (devices > kMany) return wrong(format("more than {} devices", kMany));
    if (it.sp && pins_.tp && it.form != TensorForm::k1d)
      return wrong(
          format("sp goes with tp=1d; {} splits activations already", kForms[static_cast<size_t>(it.form)]));
    if (it.sp && pins_.tp && it.tp == 1)
      return wrong("sp splits the sequence over tp, and tp=1 is given; use tp=2 or more");
    if (it.owt && (it.ep > 1 || it.form != TensorForm::k1d))
      return wrong("owt goes with dp, tp=1d, cp and pp; experts and grids split the batch otherwise");
    if (it.owt && pins_.dp && it.dp == 1)
      return wrong("owt splits large weights over dp, and dp=1 is given; use dp=2 or more");
    if (it.zero_group > 0 && pins_.dp && it.dp % it.zero_group != 0)
      return wrong(format("zero groups of {} do not divide dp={}; the nearest that does is {}", it.zero_group,
                          it.dp, nearest_divisor(it.dp, it.zero_group)));
    return {};
  }

  StrategySpec& spec() { return pins_.spec; }

  static constexpr std::string_view kShapes[] = {"tp=1d:P", "tp=2d:XxY", "tp=2.5d:QxQxD", "tp=3d:QxQxQ"};
  StrategyPins pins_;
  std::vector<std::string> seen_;
};

std::string pipeline_text(const StrategySpec& spec) {
  const std::string text = format("pp={}:{}", spec.pp, kSchedules[static_cast<size_t>(spec.schedule)]);
  return spec.schedule == ScheduleKind::kInterleaved ? format("{}:{}", text, spec.virtual_stages) : text;
}

std::string offload_text(const OffloadWords& offload) {
  if (offload.automatic) return "auto";
  const Tier tiers[] = {offload.params, offload.grads, offload.optimizer, offload.activations};
  std::vector<std::string> parts;
  for (size_t i = 0; i < std::size(tiers); ++i)
    if (tiers[i] != Tier::kDevice)
      parts.push_back(format("{}@{}", kOffloaded[i], kTiers[static_cast<size_t>(tiers[i])]));
  return join(parts, "+");
}

}  // namespace

Result<StrategyPins> parse_parallel(std::string_view text) { return WordReader().read(text); }

std::string tensor_words(const StrategySpec& spec) {
  const auto& [x, y, z] = spec.grid;
  switch (spec.form) {
    case TensorForm::k1d: return format("tp={}", spec.tp);
    case TensorForm::k2d: return format("tp=2d:{}x{}", x, y);
    case TensorForm::k25d: return format("tp=2.5d:{}x{}x{}", x, y, z);
    case TensorForm::k3d: return format("tp=3d:{}x{}x{}", x, y, z);
  }
  return {};
}

std::string to_text(const StrategySpec& spec) {
  std::vector<std::string> words;
  if (spec.dp > 1) words.push_back(format("dp={}", spec.dp));
  if (spec.tp > 1) words.push_back(tensor_words(spec));
  if (spec.sp && spec.tp > 1) words.push_back("sp");
  if (spec.cp > 1)
    words.push_back(format("cp={}:{}", kContexts[static_cast<size_t>(spec.context)], spec.cp) +
                    (spec.zigzag ? "" : ":contiguous"));
  if (spec.ep > 1) words.push_back(format("ep={}", spec.ep));
  if (spec.pp > 1) words.push_back(pipeline_text(spec));
  if (spec.zero > 0 && spec.data() * spec.cp > 1)
    words.push_back(spec.zero_group > 0 ? format("zero={}:{}", spec.zero, spec.zero_group)
                                        : format("zero={}", spec.zero));
  if (spec.micro_batch > 0) words.push_back(format("mb={}", spec.micro_batch));
  if (spec.chunks > 1) words.push_back(format("chunks={}", spec.chunks));
  if (spec.recompute != RecomputeForm::kNone)
    words.push_back(format("recompute={}", kRecompute[static_cast<size_t>(spec.recompute)]));
  if (spec.offload.any()) words.push_back("offload=" + offload_text(spec.offload));
  if (spec.keep) words.push_back("keep");
  if (spec.owt && spec.dp > 1) words.push_back("owt");
  return words.empty() ? "single" : join(words, ",");
}

}  // namespace tessera
