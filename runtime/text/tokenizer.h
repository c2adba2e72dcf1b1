#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/recipe/registry.h"

namespace shoal {

/// Turns text into token ids and back. Registered under `tokenizer.name`. Free of torch.
class Tokenizer {
 public:
  struct Context {};
  static constexpr std::string_view kNameKey = "name";
  static constexpr std::string_view kNoun = "tokenizer";

  virtual ~Tokenizer() = default;
  /// Ids are below; at most 65,536.
  virtual int64_t vocabulary() const = 0;
  /// The name in recipes and, for tokenizers with files, the SHA-256 of what they hold: two
  /// tokenizers of one identity give equal ids.
  virtual std::string identity() const = 0;
  /// Appends the ids of a text. Safe from several threads at once.
  virtual void encode(std::string_view text, std::vector<int64_t>& ids) const = 0;
  /// How many bytes at the start of `text` can be encoded now: their ids stay the same whatever
  /// follows `text`. 0: more must be read first. A long text can so be encoded piece by piece.
  virtual size_t complete_prefix(std::string_view text) const = 0;
  /// The bytes of a token. Throws std::out_of_range for an unknown id.
  virtual std::string_view bytes_of(int64_t id) const = 0;
  /// The id that ends a text, or -1.
  virtual int64_t end_of_text() const { return -1; }

  std::string decode(const std::vector<int64_t>& ids) const;
};

}  // namespace shoal
