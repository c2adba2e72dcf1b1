#pragma once

#include <torch/types.h>

#include <cstdint>
#include <vector>

#include "parallel/comm/communicator.h"

// b samples on this rank  N references  k neighbours  C classes  D features
namespace shoal {

/// k-nearest-neighbour classifier, which judges features without training a head. References are
/// training samples with known labels. The k references of highest cosine vote for their labels
/// with weight exp(cosine / temperature). Among equal references the one added first wins, among
/// equal classes the lower id. Source: Wu et al. 2018, section 3.4 (instance discrimination).
class NearestNeighbours {
 public:
  NearestNeighbours(int64_t neighbours, double temperature)
      : neighbours_(neighbours), temperature_(temperature) {}

  /// Adds the samples of all ranks as references, in rank order; every rank then holds all of them.
  /// feature_bD: rows of norm above 0; label_b: int64. Collective, b may be 0.
  void add(const torch::Tensor& feature_bD, const torch::Tensor& label_b, Communicator& world);
  void clear() { features_.clear(), labels_.clear(); }
  int64_t size() const;  ///< N

  /// Predicts the class of each sample, int64 [b]. `own_b`: the reference that is the sample
  /// itself, which does not vote, -1 for none; undefined: none. TORCH_CHECK that there are
  /// references.
  torch::Tensor classify(const torch::Tensor& feature_bD, const torch::Tensor& own_b = {}) const;

 private:
  int64_t neighbours_;
  double temperature_;
  std::vector<torch::Tensor> features_, labels_;  ///< one entry per call of add
};

}  // namespace shoal
