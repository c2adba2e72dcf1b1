#pragma once

#include <torch/types.h>

#include <cstdint>
#include <vector>

#include "models/attention_experts/kernels/top_k_attention.h"
#include "moe/exchange/unit_placement.h"
#include "parallel/comm/collectives.h"

// b images of this rank  B images of all ranks of the expert group  N tokens of an image  D width
// U units  u units of this rank  I images that have a token for a unit of this rank
// A rows of this rank's tokens  R rows of a unit
namespace shoal {

/// The tokens routed to one unit of this rank.
struct UnitTokens {
  /// int64: the images, of the I received, that have such tokens; undefined: every token of every
  /// image is routed to the unit, or I is 0.
  torch::Tensor image_J;
  torch::Tensor row_R;   ///< int64: rows of the tokens in [I N]; undefined where image_J is
  ImageQueries queries;  ///< the tokens as queries on images image_J
  bool has_all() const { return !image_J.defined(); }
};

/// Numbers of this rank's tokens and images that are routed to units.
struct RoutedCounts {
  std::vector<int64_t> tokens_U, images_U;  ///< routed to each unit
  int64_t images = 0;                       ///< routed to at least one unit
};

/// All-to-all of images for attention experts: sends an image to every rank with a unit that some
/// of its tokens are routed to, and returns the units' outputs. Attention reads all tokens, so each
/// rank receives the whole image once, with a mask of tokens for each unit; only outputs of routed
/// tokens are sent back.
///
/// Images keep the global order of the data stream, so a unit's input is independent of the number
/// of ranks. A single rank exchanges nothing. Masks are copied to the host. Source: shoal's own.
class ImageExchange {
 public:
  /// The placement of units, and the number of images on each rank of the expert group.
  struct Layout {
    const UnitPlacement& placement;
    std::vector<int64_t> images_of_rank;
    Communicator& expert;  ///< must outlive the graph
  };
  /// is_routed_bUN: bool, True where a token is routed to a unit. Collective; waits for the GPU
  /// once. TORCH_CHECK unless placement and images_of_rank match the group.
  ImageExchange(const torch::Tensor& is_routed_bUN, Layout layout);
  /// Routes every token to every unit, without waiting. `num_tokens`: tokens of an image.
  ImageExchange(int64_t num_tokens, const torch::Device& device, Layout layout);

  /// Sends images to units: [b, N, D] -> [I, N, D]. Differentiable; both passes are collective.
  torch::Tensor to_units(const torch::Tensor& x_bND) const;
  /// Of this rank's units, in the order of their ids.
  const std::vector<UnitTokens>& tokens_u() const { return tokens_u_; }
  /// Sends the units' output rows back: rows_RD by unit, image and token -> [A, D] by unit id,
  /// image and token, for this rank's images. Differentiable; both passes are collective.
  torch::Tensor to_images(const torch::Tensor& rows_RD) const;
  /// int64 [A]: the token, as a row of [b N], and the unit of each row that to_images returns.
  const torch::Tensor& token_A() const { return token_A_; }
  const torch::Tensor& unit_A() const { return unit_A_; }
  const RoutedCounts& counts() const { return counts_; }

 private:
  /// Routing masks on the host.
  struct Masks {
    torch::Tensor own_bUN;    ///< bool, this rank's images
    torch::Tensor units_uBN;  ///< uint8, this rank's units
  };
  Masks exchange_masks(const torch::Tensor& is_routed_bUN) const;
  void check_layout() const;
  void plan(const Masks& masks, const torch::Device& device);
  void plan_images(const Masks& masks);
  void plan_rows(const Masks& masks);

  UnitPlacement placement_;
  std::vector<int64_t> images_of_rank_;
  Communicator* expert_;
  torch::Tensor sent_image_;  ///< int64: images in order of destination; undefined: all, once
  RowCounts send_images_, recv_images_;
  RowCounts send_rows_, recv_rows_;          ///< rows per rank in to_images
  torch::Tensor to_ranks_R_, from_units_R_;  ///< permutation from unit order to destination order
                                             ///< and its inverse; undefined: identity
  torch::Tensor to_ids_A_, from_ids_A_;      ///< likewise, from order of arrival to unit ids
  std::vector<UnitTokens> tokens_u_;
  torch::Tensor token_A_, unit_A_;
  RoutedCounts counts_;
};

}  // namespace shoal
