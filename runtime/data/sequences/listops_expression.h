#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "runtime/data/data_source.h"
#include "runtime/random/random_stream.h"

namespace shoal {

/// Token ids of ListOps, nested operators on digits: 0 is padding, digit d is kListOpsDigit + d,
/// then the operators, each together with its opening bracket, and the closing bracket.
inline constexpr int64_t kListOpsDigit = 1, kListOpsMin = 11, kListOpsMax = 12, kListOpsMed = 13,
                         kListOpsSumMod = 14, kListOpsClose = 15, kListOpsVocabulary = 16;

/// How random expressions are drawn. A node above the deepest level is an operator with probability
/// 1/4, else a digit; an operator has 2 to max_args arguments. Lengths strictly between the bounds
/// are accepted. Source: Nangia and Bowman 2018; Long Range Arena (Tay et al. 2021), listops.py.
struct ListOpsRule {
  int64_t min_length = 500;
  int64_t max_length = 2000;
  int64_t max_depth = 10;
  int64_t max_args = 10;

  static constexpr auto fields() {
    return std::tuple{
        field("min_length", &ListOpsRule::min_length, "expressions are longer than this",
              unit("tokens"), in_range(0, 1 << 20)),
        field("max_length", &ListOpsRule::max_length, "expressions are shorter than this",
              unit("tokens"), in_range(2, 1 << 20)),
        field("max_depth", &ListOpsRule::max_depth,
              "maximum depth; the deepest level has only digits", in_range(1, 64)),
        field("max_args", &ListOpsRule::max_args, "maximum number of arguments of an operator",
              in_range(2, 1000))};
  }
  /// Reports length bounds that no drawn expression meets, or too few. `section`: prefix of the
  /// rule's keys, "" or ending in a dot.
  void check_drawing(Problems& problems, const std::string& section) const;
};

struct ListOpsExpression {
  std::vector<int64_t> tokens;
  int64_t value = 0;  ///< 0 to 9
};

/// Draws expression `id`. Attempt k = 0, 1, ... uses `stream` with k added to its step. Returns the
/// first attempt of accepted length in `split`, or nothing once the rejected attempts together have
/// `most_tokens` tokens. A hash of its tokens assigns each expression to one split, one in eight to
/// validation, so the splits share no expression. Within a split, short expressions repeat.
std::optional<ListOpsExpression> try_expression(const ListOpsRule& rule, Split split,
                                                const Stream& stream, uint64_t id,
                                                int64_t most_tokens);
/// Calls try_expression; throws DataError after 2^30 tokens. `key`: the rule's section, for errors.
ListOpsExpression draw_expression(const ListOpsRule& rule, Split split, const Stream& stream,
                                  uint64_t id, const char* key);

}  // namespace shoal
