#pragma once

#include <torch/types.h>

#include <cstdint>
#include <vector>

// b sequences  N heads of keys and values  P positions  H head width
namespace shoal {

/// The keys and values of the tokens that each sequence has so far, a pair a layer, so that a token
/// is computed once. Sequences of a batch may differ in length.
struct KeyValueCache {
  struct Layer {
    torch::Tensor key_bNPH, value_bNPH;  ///< rows from length_b on are unspecified
  };
  std::vector<Layer> layers;
  std::vector<int64_t>
      length_b;          ///< tokens held, by sequence; may be lowered to drop the last ones
  int64_t capacity = 0;  ///< P
};

}  // namespace shoal
