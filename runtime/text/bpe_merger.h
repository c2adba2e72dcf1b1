#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/text/bpe_vocabulary.h"

namespace shoal {

/// Turns words into token ids by byte-pair encoding (Sennrich et al. 2016): starts from bytes and
/// applies the merge of highest priority until none applies. Takes n log n steps for n bytes.
class BpeMerger {
 public:
  explicit BpeMerger(BpeVocabulary vocabulary);
  const BpeVocabulary& vocabulary() const { return vocabulary_; }

  /// Working memory of one thread, reused for each word.
  class Scratch;
  /// Appends the ids of a word to `ids`. Thread-safe if each thread has its own scratch.
  void encode(std::string_view word, std::vector<int64_t>& ids, Scratch& scratch) const;

 private:
  struct Pair {
    uint32_t key = 0;  ///< left id, right id: 16 bits each
    uint32_t rank;     ///< index among the merges; kNone in a free slot
  };
  struct Word {
    uint32_t hash = 0;
    int32_t id = -1;  ///< -1 in a free slot
  };

  uint32_t find_rank(int32_t left, int32_t right) const;
  /// Token id of a whole word; -1 if the word's merges do not end in one token.
  int32_t find_word(std::string_view word) const;
  void merge(std::string_view word, std::vector<int64_t>& ids, Scratch& scratch) const;
  void add_pairs();
  void add_words();

  BpeVocabulary vocabulary_;
  int32_t byte_id_[256] = {};
  // Hash tables with open addressing, of 2^n slots.
  std::vector<Pair> pairs_;
  std::vector<Word> words_;
};

class BpeMerger::Scratch {
  friend class BpeMerger;
  /// A token of the word being merged; they form a linked list.
  struct Node {
    int32_t id;
    uint32_t rank;  ///< rank of the merge with the next node
    size_t previous, next;
  };
  std::vector<Node> nodes_;
  std::vector<std::pair<uint32_t, size_t>> heap_;  ///< rank and node; stale ones are skipped
};

}  // namespace shoal
