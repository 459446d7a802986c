// SyntaxTree: a parsed template. All nodes are in one store, so
// freeing them does not recurse. Immutable after parsing; any thread.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "text/jinja/token.h"
#include "text/jinja/value.h"

namespace tessera::jinja {

struct FilterEntry;
struct TestEntry;

enum class NodeKind : uint8_t {
  // expressions
  kConstant,
  kName,
  kList,
  kTuple,
  kDict,    // children: key, value, key, value, ...
  kNegate,  // -child
  kPlus,    // +child
  kNot,
  kBinary,  // left, right; `operation`
  kAnd,
  kOr,
  kCompare,      // the operands; `operations` between them
  kConcat,       // a ~ b ~ c
  kConditional,  // condition, value, and another value or null
  kAttribute,    // child.name
  kItem,         // child[index]
  kSlice,        // child[begin:end:step], each or null
  kCall,         // child(arguments)
  kFilter,       // child|name(arguments); child is null at the head of a filter of a block
  kTest,         // child is name(arguments)
  // statements
  kOutput,       // children
  kIf,           // condition; body, otherwise
  kFor,          // target, iterable, condition or null; body, otherwise
  kSet,          // target, value
  kSetBlock,     // target, filter or null; body
  kMember,       // a target: name.member of a namespace
  kMacro,        // parameters; body
  kCallBlock,    // the call; parameters; body
  kFilterBlock,  // the filter; body
  kWith,         // target, value, target, value, ...; body
  kGeneration,   // body
  kBreak,
  kContinue
};

enum class Operation : uint8_t {
  kAdd,
  kSubtract,
  kMultiply,
  kDivide,
  kFloorDivide,
  kModulo,
  kPower,
  kEqual,
  kNotEqual,
  kLess,
  kLessEqual,
  kGreater,
  kGreaterEqual,
  kIn,
  kNotIn
};

struct Node {
  NodeKind kind = NodeKind::kConstant;
  Operation operation = Operation::kAdd;
  Position at;
  int depth = 1;
  std::string name, member;
  Value constant;
  std::vector<const Node*> children;
  std::vector<Operation> operations;
  std::vector<const Node*> body, otherwise;
  bool is_recursive = false;

  // Of calls, filters and tests.
  std::vector<const Node*> arguments;
  std::vector<std::pair<std::string, const Node*>> keywords;
  const Node* more_arguments = nullptr;  // *more
  const Node* more_keywords = nullptr;   // **more
  const FilterEntry* filter = nullptr;
  const TestEntry* test = nullptr;

  // Of macros and call blocks.
  std::vector<std::pair<std::string, const Node*>> parameters;  // with defaults, or null
  bool takes_caller = false, takes_keywords = false, takes_more = false;
};

struct SyntaxTree {
  std::deque<Node> nodes;
  std::vector<const Node*> body;
  bool has_generation = false;
};

// Must run on a library Thread. kInvalidArgument for syntax errors,
// kUnsupported for unsupported parts of Jinja2; both name line and column.
Result<SyntaxTree> parse(std::string_view source);

}  // namespace tessera::jinja
