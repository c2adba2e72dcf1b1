#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <tuple>
#include <utility>

#include "runtime/base/size_limits.h"
#include "runtime/recipe/config.h"

namespace shoal {

/// Which keys of its image a query may choose among.
enum class CandidateKind {
  kAll,
  kWindow,  ///< those of a square around the query's patch
  kPooled,  ///< those of the blocks whose mean key has the highest logits
};

template <>
struct EnumNames<CandidateKind> {
  static constexpr std::array names{std::pair{CandidateKind::kAll, "all"},
                                    std::pair{CandidateKind::kWindow, "window"},
                                    std::pair{CandidateKind::kPooled, "pooled"}};
};

/// The candidates of an attention expert (recipe section `candidates`). Blocks as in NSA (Yuan et
/// al. 2025, section 3.3), here square.
struct KeyCandidates {
  CandidateKind from = CandidateKind::kAll;
  int64_t window = 7;
  int64_t block = 4;
  int64_t keep = 4;

  static constexpr auto fields() {
    return std::tuple{
        field("from", &KeyCandidates::from, "which keys a query chooses among"),
        field("window", &KeyCandidates::window, "side of the window, odd", in_range(1, kMostWidth),
              unit("patches")),
        field("block", &KeyCandidates::block, "side of a block of pooled keys",
              in_range(1, kMostWidth), unit("patches")),
        field("keep", &KeyCandidates::keep, "blocks of the highest logits that a query sees",
              in_range(1, kMostWidth))};
  }
  void validate(Problems& problems) const {
    if (window % 2 == 0) {
      problems.add("window", "is even, so that no patch is in the middle; use an odd side");
    }
  }
};

/// How the tokens of an image lie on it, row by row.
struct PatchGrid {
  int64_t rows = 0, columns = 0;
  int64_t tokens() const { return rows * columns; }
};

}  // namespace shoal
