#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "runtime/text/bpe_merger.h"
#include "runtime/text/gpt2_splitter.h"
#include "runtime/text/tokenizer.h"

namespace shoal {

inline constexpr int64_t kGpt2Vocabulary = 50257;

/// Byte-level BPE with GPT-2's words; 50,257 ids with GPT-2's files. Texts must be UTF-8. Special
/// tokens are those of the form `<|…|>`, in GPT-2's files "<|endoftext|>".
///
/// Source: Radford et al. 2019, section 2.2 and encoder.py.
class Gpt2Tokenizer : public Tokenizer {
 public:
  struct Options {
    std::string vocab;
    std::string merges;
    std::optional<int64_t> vocabulary = {};  ///< default: 50257, GPT-2's

    static constexpr auto fields() {
      return std::tuple{
          required("vocab", &Options::vocab,
                   "JSON file of tokens and ids: vocab.json, or OpenAI's encoder.json", not_empty(),
                   file_path()),
          required("merges", &Options::merges,
                   "text file of merges: merges.txt, or OpenAI's vocab.bpe", not_empty(),
                   file_path()),
          field("vocabulary", &Options::vocabulary,
                "size of the vocabulary, needed before the files are opened; must equal theirs; "
                "default: 50257",
                unit("tokens"), in_range(256, 65536))};
    }
  };

  /// Reads the files if `context.reads_files`. Throws DataError if they are invalid, or if their
  /// vocabulary does not have the size in the options.
  explicit Gpt2Tokenizer(const Options& options, const Context& context = {});
  explicit Gpt2Tokenizer(BpeVocabulary vocabulary,
                         SpecialTokens special_tokens = SpecialTokens::kText);

  /// Size of the vocabulary in the files; the option's before they are read.
  int64_t vocabulary() const override { return vocabulary_; }
  std::string identity() const override { return identity_; }
  std::string cache_identity() const override;
  void encode(std::string_view text, std::vector<int64_t>& ids) const override;
  size_t complete_prefix(std::string_view text) const override;
  std::string_view bytes_of(int64_t id) const override;
  std::string special_tokens() const override {
    return special_ids_.empty() ? "" : std::string(enum_name(special_tokens_));
  }
  /// The id of "<|endoftext|>", or -1.
  int64_t end_of_text() const override { return end_of_text_; }
  std::vector<std::string> files() const override { return files_; }

 private:
  /// Offset and id of the first special token from `from` on; else the text's size and -1.
  std::pair<size_t, int64_t> find_special(std::string_view text, size_t from) const;

  Gpt2Splitter splitter_;
  BpeMerger merger_;
  std::string identity_;
  std::vector<std::string> files_;  ///< empty for a vocabulary that was passed in
  int64_t vocabulary_;
  int64_t end_of_text_ = -1;
  SpecialTokens special_tokens_;
  std::vector<int64_t> special_ids_;  ///< those to look for
  size_t longest_special_ = 0;        ///< bytes
};

}  // namespace shoal
