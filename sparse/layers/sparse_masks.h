#pragma once

#include <torch/types.h>

#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "runtime/module/state.h"
#include "sparse/layers/sparse_layer.h"
#include "sparse/layers/sparse_product.h"

namespace shoal {

/// The masks of a model's sparse layers, which training, evaluation and folding share, and the
/// sparse kernels that follow them.
///
/// A layer has no mask until one is drawn or loaded, and none while its cells are chosen softly:
/// then all its weights are on. A mask that is set stays within the weights: those that are off are
/// zero.
class SparseMasks : public Stateful {
 public:
  /// `are_chosen`: whether cells are chosen softly, so that a checkpoint may have no mask of a
  /// layer that has one now.
  explicit SparseMasks(std::vector<SparseLayer> layers, bool are_chosen = false);

  const std::vector<SparseLayer>& layers() const { return layers_; }
  /// bool, shaped like the layer's parameter; undefined without a mask.
  const torch::Tensor& mask(size_t layer) const { return masks_[layer]; }
  /// The layer has this mask from now on, which its weights fit already.
  void set_mask(size_t layer, const torch::Tensor& mask);
  /// Zeroes the weights that are off; kernels take the weights anew.
  void apply();

  /// From now on `product`, which computes the products of a layer, follows its mask and weights.
  void run_by(size_t layer, std::shared_ptr<SparseProduct> product);
  /// Null where a dense W is used.
  SparseProduct* product(size_t layer) const { return products_[layer].get(); }
  /// Counts the layers that sparse kernels run, for some number of tokens at least.
  int64_t run_by_kernels() const;

  /// No rule updates the masks from this step on, whatever its own `until`.
  void rest_from(int64_t step) { rest_from_ = step; }
  bool rest_at(int64_t step) const { return step >= rest_from_; }

  /// Throws Error (exit 12) unless the masks are such as the patterns have: where they were loaded
  /// from a checkpoint of another recipe. `may_exceed`: GrowRule::may_exceed_density.
  void require_fit(bool may_exceed) const;

  void visit_state(StateVisitor& visitor) override;
  /// Lists the mask of one layer; nothing without one.
  void visit_mask(size_t layer, StateVisitor& visitor);
  /// Layers have a mask where the checkpoint has one.
  void fit_to(const SavedNames& saved) override;
  void fit_to(size_t layer, const SavedNames& saved);
  /// Weights that were loaded are masked as well.
  void tensors_loaded() override;

 private:
  std::vector<SparseLayer> layers_;
  bool are_chosen_;
  std::vector<torch::Tensor> masks_;
  std::vector<std::shared_ptr<SparseProduct>> products_;
  int64_t rest_from_ = std::numeric_limits<int64_t>::max();
};

}  // namespace shoal
