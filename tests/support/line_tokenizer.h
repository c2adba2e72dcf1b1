#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/text/tokenizer.h"

namespace shoal::testing {

/// A tokenizer of lines: each byte is a token, but that the first byte of a line has 256 added.
/// Cuts behind newlines only, and refuses the byte 0xff.
class LineTokenizer : public Tokenizer {
 public:
  explicit LineTokenizer(std::string identity = "lines") : identity_(std::move(identity)) {}

  int64_t vocabulary() const override { return 512; }
  std::string identity() const override { return identity_; }
  void encode(std::string_view text, std::vector<int64_t>& ids) const override {
    const size_t bad = text.find('\xff');
    if (bad != std::string_view::npos) throw BadText(bad, "0xff", "");
    if (on_encode) on_encode();
    num_encoded += static_cast<int64_t>(text.size());
    for (size_t i = 0; i < text.size(); ++i) {
      const bool is_first = i == 0 || text[i - 1] == '\n';
      ids.push_back(static_cast<uint8_t>(text[i]) + (is_first ? 256 : 0));
    }
  }
  size_t complete_prefix(std::string_view text) const override { return text.rfind('\n') + 1; }
  std::string_view bytes_of(int64_t) const override { return ""; }
  int64_t end_of_text() const override { return end; }

  int64_t end = -1;

  mutable std::atomic<int64_t> num_encoded = 0;  ///< bytes
  std::function<void()> on_encode;

 private:
  std::string identity_;
};

}  // namespace shoal::testing
