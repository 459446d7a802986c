#include "tests/ops/case_file.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <sstream>

#include "graph/base/text.h"
#include "graph/graph_text.h"

namespace tessera::conformance {

namespace {

Status range_after_in(TextReader& reader, ValueRange& range) {
  range.given.clear();
  TSR_ASSIGN_OR_RETURN(range.low, reader.real());
  TSR_RETURN_IF_ERROR(reader.expect("to"));
  TSR_ASSIGN_OR_RETURN(range.high, reader.real());
  if (reader.accept("away")) {
    TSR_ASSIGN_OR_RETURN(range.away, reader.real());
  }
  return {};
}

Result<std::vector<double>> numbers(TextReader& reader) {
  std::vector<double> values;
  while (reader.peek().kind == TextReader::Kind::kNumber) {
    TSR_ASSIGN_OR_RETURN(const double value, reader.real());
    values.push_back(value);
  }
  if (values.empty()) return reader.wrong("numbers");
  return values;
}

// "in a to b away d", "= 1 2 3", or nothing.
Status optional_range(TextReader& reader, ValueRange& range) {
  if (reader.accept("in")) return range_after_in(reader, range);
  if (reader.accept("=")) {
    TSR_ASSIGN_OR_RETURN(range.given, numbers(reader));
  }
  return {};
}

Result<Operand> operand(TextReader& reader, const ValueRange& default_range) {
  Operand operand;
  TSR_ASSIGN_OR_RETURN(const std::string name, reader.name());
  operand.is_float_under_test = name == "f";
  const std::optional<DType> dtype = operand.is_float_under_test ? DType::kF32 : dtype_from_name(name);
  if (!dtype) return reader.error(format("'{}' is no element type", name));
  operand.type.dtype = *dtype;
  TSR_RETURN_IF_ERROR(reader.expect("["));
  while (!reader.accept("]")) {
    TSR_ASSIGN_OR_RETURN(const int64_t extent, reader.integer());
    operand.type.shape.push_back(extent);
    if (!reader.at("]")) TSR_RETURN_IF_ERROR(reader.expect(","));
  }
  operand.range = default_range;
  TSR_RETURN_IF_ERROR(optional_range(reader, operand.range));
  return operand;
}

Result<AttrValue> attr_value(TextReader& reader) {
  const TextReader::Token token = reader.peek();
  if (token.kind == TextReader::Kind::kString) return AttrValue(reader.take().text);
  if (reader.accept("[")) {
    std::vector<int64_t> list;
    while (!reader.accept("]")) {
      TSR_ASSIGN_OR_RETURN(const int64_t item, reader.integer());
      list.push_back(item);
      if (!reader.at("]")) TSR_RETURN_IF_ERROR(reader.expect(","));
    }
    return AttrValue(std::move(list));
  }
  if (token.kind == TextReader::Kind::kNumber && token.text.find_first_of(".e") == std::string::npos) {
    TSR_ASSIGN_OR_RETURN(const int64_t value, reader.integer());
    return AttrValue(value);
  }
  TSR_ASSIGN_OR_RETURN(const double value, reader.real());
  return AttrValue(value);
}

Status attr_block(TextReader& reader, std::vector<Attr>& attrs) {
  if (!reader.accept("{")) return {};
  while (!reader.accept("}")) {
    TSR_ASSIGN_OR_RETURN(const std::string name, reader.name());
    TSR_RETURN_IF_ERROR(reader.expect("="));
    TSR_ASSIGN_OR_RETURN(AttrValue value, attr_value(reader));
    attrs.push_back({name, std::move(value)});
    if (!reader.at("}")) TSR_RETURN_IF_ERROR(reader.expect(","));
  }
  return {};
}

Result<Case> read_case(TextReader& reader, const ValueRange& default_range) {
  Case result;
  do {
    TSR_ASSIGN_OR_RETURN(Operand next, operand(reader, default_range));
    result.operands.push_back(std::move(next));
  } while (reader.accept(","));
  TSR_RETURN_IF_ERROR(attr_block(reader, result.attrs));
  if (reader.accept("gives")) {
    TSR_ASSIGN_OR_RETURN(result.expected, numbers(reader));
  }
  return result;
}

// A tolerance says why it is what it is.
Status tolerance(TextReader& reader, double& value, std::string& reason) {
  TSR_ASSIGN_OR_RETURN(value, reader.real());
  if (reader.peek().kind != TextReader::Kind::kString || reader.peek().text.empty())
    return reader.wrong("the reason for this tolerance, in quotes");
  reason = reader.take().text;
  return {};
}

Status indices(TextReader& reader, std::vector<int>& into) {
  TSR_ASSIGN_OR_RETURN(const std::vector<double> values, numbers(reader));
  for (double value : values) into.push_back(static_cast<int>(value));
  return {};
}

Status statement(TextReader& reader, int line, CaseFile& file) {
  TSR_ASSIGN_OR_RETURN(const std::string word, reader.name());
  if (word == "case") {
    TSR_ASSIGN_OR_RETURN(Case next, read_case(reader, file.values));
    next.line = line;
    next.refuses_gradient = file.refuses_gradient;
    file.cases.push_back(std::move(next));
  } else if (word == "tolerance") {
    TSR_RETURN_IF_ERROR(tolerance(reader, file.tolerance, file.reason));
  } else if (word == "gradient_tolerance") {
    std::string reason;
    TSR_RETURN_IF_ERROR(tolerance(reader, file.gradient_tolerance, reason));
  } else if (word == "linear_tolerance") {
    std::string reason;
    TSR_RETURN_IF_ERROR(tolerance(reader, file.linear_tolerance, reason));
  } else if (word == "without_gradient") {
    if (reader.peek().kind != TextReader::Kind::kString) return reader.wrong("why, in quotes");
    reader.take();
    file.refuses_gradient = true;
  } else if (word == "values") {
    TSR_RETURN_IF_ERROR(range_after_in(reader, file.values));
  } else if (word == "project") {
    TSR_RETURN_IF_ERROR(indices(reader, file.project));
  } else if (word == "differentiate") {
    TSR_RETURN_IF_ERROR(indices(reader, file.differentiate));
  } else {
    return reader.error(
        format("'{}' is no statement; wanted case, tolerance, gradient_tolerance, linear_tolerance, values, "
               "project, differentiate, without_gradient or gradient",
               word));
  }
  return reader.end_of_line();
}

Status feed_statement(TextReader& reader, GradientGraph& gradient) {
  TSR_RETURN_IF_ERROR(reader.expect("feed"));
  TSR_ASSIGN_OR_RETURN(const std::string name, reader.name());
  ValueRange range;
  TSR_RETURN_IF_ERROR(optional_range(reader, range));
  gradient.feeds.emplace_back(name, range);
  return reader.end_of_line();
}

}  // namespace

Result<CaseFile> parse_case_file(std::string_view text, std::string path) {
  CaseFile file;
  file.path = std::move(path);
  GradientGraph* gradient = nullptr;
  int line = 0;
  for (const std::string& raw : split(text, '\n')) {
    ++line;
    const std::string_view content = trim(raw);
    if (content.empty() || content[0] == '#') continue;
    TextReader reader(content);
    Status status;
    if (content == "gradient") {
      gradient = &file.gradients.emplace_back();
      gradient->line = line;
    } else if (gradient != nullptr && content == "end") {
      gradient = nullptr;
    } else if (gradient != nullptr && content.substr(0, 5) == "feed ") {
      status = feed_statement(reader, *gradient);
    } else if (gradient != nullptr) {
      gradient->text += raw + "\n";
    } else {
      status = statement(reader, line, file);
    }
    if (!status.ok()) return status.with_context(format("{}:{}", file.path, line));
  }
  const auto wrong = [&](std::string_view what) {
    return Status(StatusCode::kInvalidArgument, format("{}: {}", file.path, what));
  };
  if (gradient != nullptr) return wrong("a gradient block without end");
  if (file.cases.empty()) return wrong("no case");
  if (file.reason.empty()) return wrong("no tolerance with its reason");
  return file;
}

Result<CaseFile> read_case_file(const std::string& path) {
  std::ifstream stream(path);
  if (!stream)
    return Status(StatusCode::kNotFound,
                  format("case file {} does not exist; an op without one fails", path));
  std::stringstream text;
  text << stream.rdbuf();
  return parse_case_file(text.str(), path.substr(path.rfind('/') + 1));
}

std::vector<double> make_values(const TensorType& type, const ValueRange& range, uint64_t seed) {
  std::vector<double> values(static_cast<size_t>(type.shape.elements()));
  uint64_t state = seed * 0x9e3779b97f4a7c15u + 0x1234567u;
  for (size_t i = 0; i < values.size(); ++i) {
    if (!range.given.empty()) {
      values[i] = range.given[i % range.given.size()];
      continue;
    }
    // splitmix64
    uint64_t bits = state += 0x9e3779b97f4a7c15u;
    bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9u;
    bits = (bits ^ (bits >> 27)) * 0x94d049bb133111ebu;
    const double unit = static_cast<double>((bits ^ (bits >> 31)) >> 11) * 0x1p-53;
    if (info(type.dtype).is_float || is_block_type(type.dtype)) {
      double value = range.low + unit * (range.high - range.low);
      if (std::fabs(value) < range.away) value = std::copysign(range.away + std::fabs(value), value);
      values[i] = static_cast<double>(static_cast<float>(value));
    } else {
      values[i] = std::min(range.high, std::floor(range.low + unit * (range.high - range.low + 1)));
    }
  }
  return values;
}

}  // namespace tessera::conformance
