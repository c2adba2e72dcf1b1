#pragma once

#include <cstdint>
#include <string_view>

#include "runtime/random/philox.h"

namespace shoal {

/// Uses of random numbers; two purposes never share numbers. Notes say what layer, step, id and
/// index mean. Enum values are part of the key of a number, so they are never changed or reused.
enum class Purpose : uint32_t {
  kInit = 1,           ///< initial values of a parameter; layer = hash_name(its logical name)
  kDataOrder = 2,      ///< order of an epoch; step = epoch
  kAugment = 3,        ///< step = view, id = stream position; Mixup: step = optimizer step, id = 0
  kSynthetic = 4,      ///< procedural data; id = sample
  kRouterNoise = 5,    ///< layer = hash_name(the layer), id = token
  kDropout = 6,        ///< layer = hash_name(the layer), id = token, or sample for whole branches
  kSparsePattern = 7,  ///< prune and grow
  kTest = 8,           ///< tests and benchmarks
  kRouting = 9,        ///< routers with random choices; layer = hash_name(the layer)
  kTextWindows = 10,   ///< offset of a text's windows; step = epoch
  kGeneration = 11,    ///< sampled tokens; id = sequence, index = position
  kImageNoise = 12,    ///< noise that a denoiser is to remove; id = position in the data stream
  kCrop = 13,          ///< random crops; step = view, id = position in the data stream
  kEvaluated = 14,     ///< samples that are evaluated (evaluate.samples)
};

/// Key of a set of random numbers, like a generator's seed. A number of the stream is found by the
/// id of its row (a global token or sample id) and its index in the row, so that it does not depend
/// on ranks or threads, and there is no generator state to save.
struct Stream {
  uint64_t seed = 0;
  Purpose purpose = Purpose::kTest;
  uint64_t layer = 0;  ///< hash_name of a tensor or layer, or 0
  uint64_t step = 0;   ///< optimizer step, epoch or view

  philox::StreamKey key() const {
    return philox::stream_key(seed, static_cast<uint32_t>(purpose), layer, step);
  }
};

/// FNV-1a hash, 64 bits, of the logical name of a tensor or layer.
constexpr uint64_t hash_name(std::string_view name) {
  uint64_t hash = 0xCBF29CE484222325u;
  for (const char c : name) {
    hash ^= static_cast<unsigned char>(c);
    hash *= 0x100000001B3u;
  }
  return hash;
}

/// Single random numbers on the CPU, for decisions such as a crop's corner. Each (id, index) has a
/// number of its own, whatever the training precision. Build one object per stream and reuse it.
class ScalarDraws {
 public:
  explicit ScalarDraws(const Stream& stream) : key_(stream.key()) {}

  /// Uniform in the open interval (0, 1), 52 random bits.
  double uniform(uint64_t id, uint32_t index) const;
  /// Uniform in [0, count), with a bias below count / 2^64. count >= 1.
  int64_t integer(uint64_t id, uint32_t index, int64_t count) const;
  /// True with this probability.
  bool chance(uint64_t id, uint32_t index, double probability) const;

 private:
  philox::StreamKey key_;
};

}  // namespace shoal
