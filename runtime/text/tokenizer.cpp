#include "runtime/text/tokenizer.h"

namespace shoal {

std::string Tokenizer::decode(const std::vector<int64_t>& ids) const {
  std::string text;
  for (const int64_t id : ids) text += bytes_of(id);
  return text;
}

}  // namespace shoal
