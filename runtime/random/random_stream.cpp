#include "runtime/random/random_stream.h"

#include <stdexcept>

namespace shoal {

double ScalarDraws::uniform(uint64_t id, uint32_t index) const {
  double values[2];
  philox::values_of<philox::Distribution::kUniform>(philox::words_at(key_, id, index), values);
  return values[0];
}

int64_t ScalarDraws::integer(uint64_t id, uint32_t index, int64_t count) const {
  if (count < 1) throw std::invalid_argument("ScalarDraws::integer: count must be positive");
  const philox::Words words = philox::words_at(key_, id, index);
  return static_cast<int64_t>(philox::scale_to(words, static_cast<uint64_t>(count)));
}

bool ScalarDraws::chance(uint64_t id, uint32_t index, double probability) const {
  return uniform(id, index) < probability;
}

}  // namespace shoal
