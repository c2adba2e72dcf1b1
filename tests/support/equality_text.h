#pragma once

#include <fmt/format.h>

#include <string>
#include <vector>

#include "tests/support/scratch_folder.h"

namespace shoal::testing {

/// Overrides: bytes of a text in place of images, and the task lm. The text is a file of this
/// process.
inline std::vector<std::string> text_data() {
  static const ScratchFolder scratch;
  static const std::string text = [] {
    std::string bytes;
    for (int i = 0; i < 300; ++i) bytes += static_cast<char>((i * 7919 + i * i * 31) % 256);
    write_file(scratch.file("text"), bytes);
    return scratch.file("text");
  }();
  return {fmt::format("data={{source: text, path: {}, sequence: 6, train: {{files: [{}]}}, valid: "
                      "{{files: [{}]}}}}",
                      scratch.path(), text, text),
          "task={name: lm}"};
}

/// Overrides: a tiny GPT-2 with dropout on that text.
inline std::vector<std::string> gpt2(const std::string& keys = "bias: true") {
  std::vector<std::string> overrides = text_data();
  overrides.push_back(fmt::format(
      "model={{backbone: gpt2, width: 8, depth: 2, heads: 2, dropout: 0.2, {}}}", keys));
  return overrides;
}

/// Keys of a model: what today's decoders have in place of GPT-2's parts.
inline const std::string kModernDecoder =
    "position: rope, norm: rms, mlp: swiglu, kv_heads: 1, bias: false";

}  // namespace shoal::testing
