#pragma once

#include <torch/types.h>

#include <cstdint>
#include <vector>

#include "models/attention_experts/kernels/key_candidates.h"
#include "moe/exchange/unit_placement.h"
#include "parallel/comm/communicator.h"

// b images of this rank  B images of all ranks of the expert group  N tokens of an image  D width
// U units (attention experts)  u units of this rank  I images that have a token for one of the u
// J images of one unit  A rows of this rank's tokens, one per (token, unit)  R rows of a unit
namespace shoal {

/// The tokens routed to one unit of this rank.
struct UnitTokens {
  /// int64: which of the I images have tokens for this unit; undefined: all tokens of all I images.
  torch::Tensor image_J;
  torch::Tensor row_R;   ///< int64: index of each token in [I N]; undefined if image_J is
  ImageQueries queries;  ///< the tokens as queries on images image_J
  bool has_all() const { return !image_J.defined(); }
};

/// Numbers of this rank's own tokens and images that are routed.
struct RoutedCounts {
  std::vector<int64_t> tokens_U, images_U;  ///< to each unit
  int64_t images = 0;                       ///< routed to at least one unit
};

/// Sends images to the ranks of the units that some of their tokens are routed to, and the units'
/// outputs back. Attention reads all tokens of an image, so an image is sent whole, once to each
/// such rank, with a mask of the tokens of each unit; only the rows of routed tokens are returned.
///
/// Images are in the order of their ranks, which is their order in the batch, so a unit's input
/// does not depend on the number of ranks. A group of one rank exchanges nothing. Copies the masks
/// to the host. Source: shoal's own; dispatch by (image, unit) in place of (token, unit).
class ImageExchange {
 public:
  /// Where images and units are.
  struct Layout {
    const UnitPlacement& placement;
    std::vector<int64_t> images_of_rank;  ///< number of images of each rank
    Communicator& expert;                 ///< must outlive the graph
  };
  /// is_routed_bUN: bool, true for a token and a unit it is routed to. Collective. The host waits
  /// once for the GPU. TORCH_CHECK unless placement and images_of_rank match the group.
  ImageExchange(const torch::Tensor& is_routed_bUN, Layout layout);
  /// Routes every token to every unit; the host does not wait. `num_tokens`: tokens of an image.
  ImageExchange(int64_t num_tokens, const torch::Device& device, Layout layout);

  /// Sends images to units: [b, N, D] -> [I, N, D]. Differentiable; both passes are collective.
  torch::Tensor to_units(const torch::Tensor& x_bND) const;
  /// Tokens of this rank's units, in the order of unit ids.
  const std::vector<UnitTokens>& tokens_u() const { return tokens_u_; }
  /// Returns outputs to the ranks of their images: rows of own units [sum of R, D] -> of own images
  /// [A, D], both sorted by unit id, image and token. Differentiable; both passes are collective.
  torch::Tensor to_images(const torch::Tensor& rows_RD) const;
  /// int64 [A]: token, in [b N], and unit of each row that to_images returns.
  const torch::Tensor& token_A() const { return token_A_; }
  const torch::Tensor& unit_A() const { return unit_A_; }
  const RoutedCounts& counts() const { return counts_; }

 private:
  explicit ImageExchange(Layout layout);
  /// Routing masks on the host.
  struct Masks {
    torch::Tensor own_bUN;    ///< of this rank's images, bool
    torch::Tensor units_uBN;  ///< for this rank's units, uint8
  };
  Masks exchange_masks(const torch::Tensor& is_routed_bUN) const;
  void plan(const Masks& masks, const torch::Device& device);
  void plan_images(const Masks& masks);
  void plan_rows(const Masks& masks);

  UnitPlacement placement_;
  std::vector<int64_t> images_of_rank_;
  Communicator* expert_;
  /// int64: images to send, concatenated over destinations. Undefined: all, in a group of one rank.
  torch::Tensor sent_image_;
  RowCounts send_images_, recv_images_;
  RowCounts send_rows_, recv_rows_;  ///< of to_images
  /// Permutation of the rows to send, from order by (unit, rank) to (rank, unit), and its inverse.
  torch::Tensor to_ranks_R_, from_units_R_;
  /// Permutation of received rows to order by unit id, and its inverse. Undefined: identity.
  torch::Tensor to_ids_A_, from_ids_A_;
  std::vector<UnitTokens> tokens_u_;
  torch::Tensor token_A_, unit_A_;
  RoutedCounts counts_;
};

}  // namespace shoal
