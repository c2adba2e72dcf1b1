#include "runtime/data/sequences/listops_expression.h"

#include <fmt/format.h>

#include <array>
#include <utility>

#include "runtime/base/error.h"

namespace shoal {
namespace {

constexpr double kOperatorShare = 0.25;
constexpr int64_t kOperators = 4;

/// How often each digit is among an operator's arguments.
using DigitCounts = std::array<int64_t, 10>;

/// The digit at place `place` of the sorted arguments.
int64_t at_place(const DigitCounts& counts, int64_t place) {
  int64_t digit = 0;
  for (; counts[static_cast<size_t>(digit)] <= place; ++digit) {
    place -= counts[static_cast<size_t>(digit)];
  }
  return digit;
}

int64_t apply_operator(int64_t op, const DigitCounts& counts, int64_t args) {
  if (op == kListOpsMin) return at_place(counts, 0);
  if (op == kListOpsMax) return at_place(counts, args - 1);
  // Of an even number of arguments half the sum of the two in the middle, rounded down.
  if (op == kListOpsMed) return (at_place(counts, (args - 1) / 2) + at_place(counts, args / 2)) / 2;
  int64_t sum = 0;
  for (size_t digit = 0; digit < counts.size(); ++digit) {
    sum += static_cast<int64_t>(digit) * counts[digit];
  }
  return sum % 10;
}

/// One try: a tree, written down as it is drawn.
class ExpressionTry {
 public:
  ExpressionTry(const ListOpsRule& rule, const Stream& stream, uint64_t id)
      : rule_(rule), draws_(stream), id_(id) {}

  /// Draws an expression; nullopt if it does not have the length asked for.
  std::optional<ListOpsExpression> draw() {
    expression_.value = draw_node(1);
    if (is_too_long() || num_tokens() <= rule_.min_length) return std::nullopt;
    return std::move(expression_);
  }
  int64_t num_tokens() const { return std::ssize(expression_.tokens); }

 private:
  bool is_too_long() const { return num_tokens() >= rule_.max_length; }

  int64_t draw_node(int64_t depth) {
    const bool is_operator = depth < rule_.max_depth && draws_.chance(id_, used_++, kOperatorShare);
    if (!is_operator) {
      const int64_t digit = draws_.integer(id_, used_++, 10);
      expression_.tokens.push_back(kListOpsDigit + digit);
      return digit;
    }
    const int64_t args = 2 + draws_.integer(id_, used_++, rule_.max_args - 1);
    const int64_t op = kListOpsMin + draws_.integer(id_, used_++, kOperators);
    expression_.tokens.push_back(op);
    DigitCounts counts{};
    for (int64_t arg = 0; arg < args; ++arg) {
      const int64_t value = draw_node(depth + 1);
      if (is_too_long()) return 0;
      ++counts[static_cast<size_t>(value)];
    }
    expression_.tokens.push_back(kListOpsClose);
    return apply_operator(op, counts, args);
  }

  const ListOpsRule& rule_;
  const ScalarDraws draws_;
  uint64_t id_;
  uint32_t used_ = 0;
  ListOpsExpression expression_;
};

Split split_of(const std::vector<int64_t>& tokens) {
  std::string bytes;
  for (const int64_t token : tokens) bytes.push_back(static_cast<char>(token));
  uint64_t hash = hash_name(bytes);
  hash = (hash ^ (hash >> 33)) * 0xFF51AFD7ED558CCDu;  // spreads what differs in few bytes
  return (hash >> 61) == 0 ? Split::kValid : Split::kTrain;
}

}  // namespace

void ListOpsRule::check_drawing(Problems& problems, const std::string& section) const {
  if (max_length - min_length < 2) {
    problems.add(
        section + "min_length",
        fmt::format("no length is above {} and below max_length {}", min_length, max_length));
    return;
  }
  int64_t longest = 1;
  for (int64_t depth = 1; depth < max_depth && longest <= min_length; ++depth) {
    longest = 2 + max_args * longest;
  }
  if (longest <= min_length) {
    problems.add(section + "max_depth",
                 fmt::format("expressions of depth {} with {} arguments have {} tokens at most, "
                             "min_length requires more than {}",
                             max_depth, max_args, longest, min_length));
    return;
  }
  constexpr int64_t kMostTokens = int64_t{1} << 22;  // a fifth of a second
  for (const Split split : {Split::kTrain, Split::kValid}) {
    if (try_expression(*this, split, {0, Purpose::kSynthetic, 0, 0}, 0, kMostTokens)) continue;
    problems.add(section + "min_length",
                 fmt::format("hardly any expression has more than {} and fewer than {} tokens; "
                             "lower it, or raise max_length, max_depth or max_args",
                             min_length, max_length));
    return;
  }
}

std::optional<ListOpsExpression> try_expression(const ListOpsRule& rule, Split split,
                                                const Stream& stream, uint64_t id,
                                                int64_t most_tokens) {
  Stream own = stream;
  for (int64_t num_tokens = 0; num_tokens < most_tokens; ++own.step) {
    ExpressionTry attempt(rule, own, id);
    std::optional<ListOpsExpression> found = attempt.draw();
    if (found && split_of(found->tokens) == split) return found;
    num_tokens += found ? std::ssize(found->tokens) : attempt.num_tokens();
  }
  return std::nullopt;
}

ListOpsExpression draw_expression(const ListOpsRule& rule, Split split, const Stream& stream,
                                  uint64_t id, const char* key) {
  if (auto found = try_expression(rule, split, stream, id, int64_t{1} << 30)) return *found;
  throw DataError(
      fmt::format("{}: no expression of more than {} and fewer than {} tokens was drawn", key,
                  rule.min_length, rule.max_length),
      "lower min_length, or raise max_length, max_depth or max_args");
}

}  // namespace shoal
