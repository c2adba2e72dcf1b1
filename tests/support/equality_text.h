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

/// Overrides: a tiny GPT-2 with dropout that answers keys with their values.
inline std::vector<std::string> answers(const std::string& keys = "bias: true") {
  std::vector<std::string> overrides = gpt2(keys);
  overrides.emplace_back(
      "data={source: mqar, sequence: 12, vocabulary: 16, pairs: 2, train: {samples: 40}, valid: "
      "{samples: 11}}");
  return overrides;
}

/// Overrides: one that classifies expressions of several lengths.
inline std::vector<std::string> expressions(const std::string& pool,
                                            const std::string& keys = "bias: true") {
  std::vector<std::string> overrides = gpt2(keys);
  overrides.emplace_back(
      "data={source: listops, min_length: 3, max_length: 14, max_depth: 3, max_args: 3, train: "
      "{samples: 40}, valid: {samples: 11}}");
  overrides.push_back(fmt::format("task={{name: classify, pool: {}}}", pool));
  return overrides;
}

/// Overrides: a tiny HSPMN in place of a task's model. `gate`: more of its keys.
inline std::vector<std::string> with_hspmn(std::vector<std::string> task,
                                           const std::string& gate = "rate: 0.4",
                                           const std::string& keys = "causal: true") {
  task.push_back(fmt::format(
      "model={{backbone: hspmn, width: 8, depth: 2, heads: 4, kv_heads: 2, hidden: 10, gate: "
      "{{anchor_every: 5, anneal_steps: 3, explore_fraction: 0.2, {}}}, {}}}",
      gate, keys));
  return task;
}

/// Keys of a model: what today's decoders have in place of GPT-2's parts.
inline const std::string kModernDecoder =
    "position: rope, norm: rms, mlp: swiglu, kv_heads: 1, bias: false";

}  // namespace shoal::testing
