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

/// Masks of a model's sparse layers, true where a weight is on, and the sparse kernels that follow
/// them. Training, evaluation and the export of weights share them. With a mask, weights that are
/// off are zero. All weights of a layer are on until its mask is drawn, loaded or chosen. A choice
/// ends soft training (SoftCells), where each cell, a set of weights that are on or off together,
/// has a trained score.
class SparseMasks : public Stateful {
 public:
  /// `are_chosen`: true if masks are chosen by soft training. Then loading a checkpoint without a
  /// layer's mask removes the mask that the layer has.
  explicit SparseMasks(std::vector<SparseLayer> layers, bool are_chosen = false);

  const std::vector<SparseLayer>& layers() const { return layers_; }
  /// bool, shaped like the parameter of layer number `layer`; undefined without a mask.
  const torch::Tensor& mask(size_t layer) const { return masks_[layer]; }
  /// Sets the mask of a layer; the caller zeroes the weights that are off, or calls apply().
  void set_mask(size_t layer, const torch::Tensor& mask);
  /// Zeroes the weights that are off. Call it after changing weights or masks: kernels then follow.
  void apply();

  /// Makes `product`, which computes the products of a layer, follow its mask and weights.
  void run_by(size_t layer, std::shared_ptr<SparseProduct> product);
  /// Null if the layer always uses dense products.
  SparseProduct* product(size_t layer) const { return products_[layer].get(); }
  /// Number of layers that use sparse kernels, be it only for some numbers of tokens.
  int64_t run_by_kernels() const;

  /// Keeps the masks from this step on, also if the grow rule's `until` is later, as when a longer
  /// run resumes. PruneGrow, which updates masks, asks rest_at().
  void rest_from(int64_t step) { rest_from_ = step; }
  bool rest_at(int64_t step) const { return step >= rest_from_; }

  /// Throws Error (exit 12) if a mask does not fit its pattern and density, such as one loaded from
  /// another recipe's checkpoint. `may_exceed`: true to accept masks of a higher density.
  void require_fit(bool may_exceed) const;

  void visit_state(StateVisitor& visitor) override;
  void visit_mask(size_t layer, StateVisitor& visitor);  ///< lists the mask of a layer, if any
  /// Gives each layer a mask, to be loaded, if the checkpoint has one.
  void fit_to(const SavedNames& saved) override;
  void fit_to(size_t layer, const SavedNames& saved);
  /// Zeroes loaded weights that are off, and passes the loaded masks to the kernels.
  void tensors_loaded() override;

 private:
  std::vector<SparseLayer> layers_;
  bool are_chosen_;
  std::vector<torch::Tensor> masks_;
  std::vector<std::shared_ptr<SparseProduct>> products_;
  int64_t rest_from_ = std::numeric_limits<int64_t>::max();
};

}  // namespace shoal
