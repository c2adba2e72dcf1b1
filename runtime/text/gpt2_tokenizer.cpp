#include "runtime/text/gpt2_tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "runtime/base/utf8.h"

namespace shoal {

Gpt2Tokenizer::Gpt2Tokenizer(const Options& options, const Context& context)
    : Gpt2Tokenizer(context.reads_files ? read_bpe_vocabulary(options.vocab, options.merges)
                                        : BpeVocabulary{}) {
  files_ = {options.vocab, options.merges};
  if (!context.reads_files) {
    vocabulary_ = options.vocabulary.value_or(kGpt2Vocabulary);
  } else if (options.vocabulary.value_or(vocabulary_) != vocabulary_) {
    throw DataError(fmt::format("{}: its vocabulary has {} tokens, and tokenizer.vocabulary is {}",
                                options.vocab, vocabulary_, *options.vocabulary),
                    fmt::format("set vocabulary to {}", vocabulary_));
  }
}

Gpt2Tokenizer::Gpt2Tokenizer(BpeVocabulary vocabulary)
    : merger_(std::move(vocabulary)),
      identity_("gpt2:" + hash_bpe_vocabulary(merger_.vocabulary())),
      vocabulary_(static_cast<int64_t>(merger_.vocabulary().tokens.size())) {
  const std::vector<std::string>& tokens = merger_.vocabulary().tokens;
  const auto end = std::find(tokens.begin(), tokens.end(), "<|endoftext|>");
  if (end != tokens.end()) end_of_text_ = end - tokens.begin();
}

void Gpt2Tokenizer::encode(std::string_view text, std::vector<int64_t>& ids) const {
  if (merger_.vocabulary().tokens.empty()) {
    throw std::logic_error("a tokenizer that was made without its files cannot encode");
  }
  const Utf8Check check = check_utf8(text);
  if (check.valid < text.size()) {
    throw BadText(check.valid,
                  fmt::format("not UTF-8: 0x{:02X}{}", static_cast<uint8_t>(text[check.valid]),
                              check.is_cut ? ", and the text ends" : ""));
  }
  Gpt2Splitter::Words words(splitter_, text);
  BpeMerger::Scratch scratch;
  for (std::string_view word; words.next(word);) merger_.encode(word, ids, scratch);
}

size_t Gpt2Tokenizer::complete_prefix(std::string_view text) const {
  return splitter_.last_cut(text);
}

std::string_view Gpt2Tokenizer::bytes_of(int64_t id) const {
  return merger_.vocabulary().tokens.at(static_cast<size_t>(id));
}

namespace {
const Registration<Tokenizer, Gpt2Tokenizer> registered_gpt2_tokenizer{
    "gpt2", "GPT-2's byte-level BPE, from its two files"};
}  // namespace

}  // namespace shoal
