#pragma once

#include <torch/types.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "runtime/base/size_limits.h"
#include "runtime/options/config.h"

// R queries of all images
namespace shoal {

/// Which keys of its image a query may attend to.
enum class CandidateKind {
  kAll,
  kWindow,  ///< keys in a square window around the query's patch
  kPooled,  ///< keys of the blocks whose mean key has the highest logits
};

template <>
inline constexpr std::array kEnumWords<CandidateKind>{"all", "window", "pooled"};

/// Candidate keys of an attention expert, which attends to few of them (section `candidates`).
/// Pooled blocks are NSA's (Yuan et al. 2025, section 3.3), but square.
struct KeyCandidates {
  CandidateKind from = CandidateKind::kAll;
  std::optional<int64_t> window, block, keep;  ///< window of kWindow; block and keep of kPooled

  static constexpr auto fields() {
    return std::tuple{field("from", &KeyCandidates::from, "candidate keys of a query"),
                      field("window", &KeyCandidates::window, "window: side length, odd",
                            in_range(1, kMostWidth), unit("patches")),
                      field("block", &KeyCandidates::block, "pooled: side of a block",
                            in_range(1, kMostWidth), unit("patches")),
                      field("keep", &KeyCandidates::keep,
                            "pooled: number of blocks a query sees, those with the highest logits",
                            in_range(1, kMostWidth))};
  }
  void validate(Problems& problems) const {
    const auto check = [&](const char* key, const std::optional<int64_t>& value,
                           CandidateKind kind) {
      const std::string name(enum_name(kind));
      if (from == kind && !value)
        problems.add(key, "is missing; candidates from " + name + " need it");
      if (from != kind && value) problems.add(key, "needs from: " + name);
    };
    check("window", window, CandidateKind::kWindow);
    check("block", block, CandidateKind::kPooled);
    check("keep", keep, CandidateKind::kPooled);
    if (window && *window % 2 == 0) {
      problems.add("window", "is even, so that no patch is in the middle; use an odd side");
    }
  }
};

/// The rows and columns of an image's patches; tokens are numbered row by row.
struct PatchGrid {
  int64_t rows = 0, columns = 0;
  int64_t tokens() const { return rows * columns; }
};

/// The tokens that attend: those of image i are the rows [offset_i1[i], offset_i1[i + 1]).
struct ImageQueries {
  /// int64 [R]: each query's token in its image; undefined: every token of every image, in order.
  torch::Tensor token_R;
  std::vector<int64_t> offset_i1;  ///< [I + 1], first 0, last R; an image may have no query
};

/// Which keys a query attends to: those of its k highest logits among the candidates.
struct TopKOptions {
  int64_t heads = 1;
  int64_t k = 1;  ///< all candidates if there are no more than k
  KeyCandidates candidates = {};
  PatchGrid grid = {};  ///< read by candidates other than `all`
};

}  // namespace shoal
