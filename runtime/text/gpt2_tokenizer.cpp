#include "runtime/text/gpt2_tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "runtime/base/utf8.h"

namespace shoal {
Gpt2Tokenizer::Gpt2Tokenizer(const Options& options, const Context& context)
    : Gpt2Tokenizer(context.reads_files ? read_bpe_vocabulary(options.vocab, options.merges)
                                        : BpeVocabulary{},
                    context.special_tokens) {
  files_ = {options.vocab, options.merges};
  if (!context.reads_files) {
    vocabulary_ = options.vocabulary.value_or(kGpt2Vocabulary);
  } else if (options.vocabulary.value_or(vocabulary_) != vocabulary_) {
    throw DataError(fmt::format("{}: its vocabulary has {} tokens, and tokenizer.vocabulary is {}",
                                options.vocab, vocabulary_, *options.vocabulary),
                    fmt::format("set vocabulary to {}", vocabulary_));
  }
}

Gpt2Tokenizer::Gpt2Tokenizer(BpeVocabulary vocabulary, SpecialTokens special_tokens)
    : merger_(std::move(vocabulary)),
      identity_("gpt2:" + hash_bpe_vocabulary(merger_.vocabulary())),
      vocabulary_(std::ssize(merger_.vocabulary().tokens)),
      special_tokens_(special_tokens) {
  const std::vector<std::string>& tokens = merger_.vocabulary().tokens;
  const auto end = std::ranges::find(tokens, "<|endoftext|>");
  if (end != tokens.end()) end_of_text_ = end - tokens.begin();
  if (special_tokens == SpecialTokens::kText) return;
  for (int64_t id = 0; id < vocabulary_; ++id) {
    const std::string_view token = bytes_of(id);
    if (!token.starts_with("<|") || !token.ends_with("|>") || token.size() <= 4) continue;
    special_ids_.push_back(id);
    longest_special_ = std::max(longest_special_, token.size());
  }
}

std::string Gpt2Tokenizer::cache_identity() const {
  return identity_ + " unicode " + unicode_version() + special_tokens();
}

std::pair<size_t, int64_t> Gpt2Tokenizer::find_special(std::string_view text, size_t from) const {
  for (size_t at = from; (at = text.find("<|", at)) != text.npos; ++at) {
    for (const int64_t id : special_ids_) {
      if (text.substr(at).starts_with(bytes_of(id))) return {at, id};
    }
  }
  return {text.size(), -1};
}

void Gpt2Tokenizer::encode(std::string_view text, std::vector<int64_t>& ids) const {
  if (merger_.vocabulary().tokens.empty()) {
    throw std::logic_error("a tokenizer that was made without its files cannot encode");
  }
  const Utf8Check check = check_utf8(text);
  if (check.valid < text.size()) {
    throw BadText(check.valid,
                  fmt::format("not UTF-8: 0x{:02X}{}", static_cast<uint8_t>(text[check.valid]),
                              check.is_cut ? ", and the text ends" : ""),
                  "convert the file, for instance with iconv, or use another tokenizer");
  }
  const auto [first, first_id] = find_special(text, 0);
  if (first_id >= 0 && special_tokens_ == SpecialTokens::kError) {
    throw BadText(
        first, fmt::format("the special token {}", bytes_of(first_id)),
        "add data.special_tokens=encode to the command, which makes it that one id, or =text, "
        "which splits it like other text (`shoal data tokenize`: --special-tokens)");
  }
  BpeMerger::Scratch scratch;
  for (size_t at = 0; at < text.size();) {
    const auto [end, id] = find_special(text, at);
    Gpt2Splitter::Words words(splitter_, text.substr(at, end - at));
    for (std::string_view word; words.next(word);) merger_.encode(word, ids, scratch);
    if (id >= 0) ids.push_back(id);
    at = end + (id >= 0 ? bytes_of(id).size() : 0);
  }
}

size_t Gpt2Tokenizer::complete_prefix(std::string_view text) const {
  if (special_ids_.empty()) return splitter_.last_cut(text);
  size_t begin = 0;  // behind the last special token
  for (auto [at, id] = find_special(text, 0); id >= 0;
       std::tie(at, id) = find_special(text, begin)) {
    begin = at + bytes_of(id).size();
  }
  // One may have begun and go on in what follows.
  const size_t begun =
      text.find('<', text.size() - std::min(text.size() - begin, longest_special_));
  return begin + splitter_.last_cut(text.substr(begin, std::min(begun, text.size()) - begin));
}

std::string_view Gpt2Tokenizer::bytes_of(int64_t id) const {
  return merger_.vocabulary().tokens.at(static_cast<size_t>(id));
}

const Registration<Tokenizer, Gpt2Tokenizer> registered_gpt2_tokenizer{
    "gpt2", "GPT-2's byte-level BPE, from its two files"};

}  // namespace shoal
