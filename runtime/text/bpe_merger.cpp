#include "runtime/text/bpe_merger.h"

#include <bit>
#include <functional>

namespace shoal {
namespace {

constexpr uint32_t kNone = UINT32_MAX;
constexpr size_t kNowhere = SIZE_MAX;

/// At most half of the slots are taken.
size_t num_slots(size_t entries) { return std::bit_ceil(2 * entries + 1); }

uint32_t key_of(int32_t left, int32_t right) {
  return static_cast<uint32_t>(left) << 16 | static_cast<uint32_t>(right);
}

size_t slot_of(uint32_t key, size_t slots) {
  return static_cast<size_t>((key * uint64_t{0x9E3779B97F4A7C15}) >> 32) & (slots - 1);
}

}  // namespace

BpeMerger::BpeMerger(BpeVocabulary vocabulary) : vocabulary_(std::move(vocabulary)) {
  for (size_t id = 0; id < vocabulary_.tokens.size(); ++id) {
    const std::string& token = vocabulary_.tokens[id];
    if (token.size() == 1) byte_id_[static_cast<uint8_t>(token[0])] = static_cast<int32_t>(id);
  }
  add_pairs();
  add_words();
}

void BpeMerger::add_pairs() {
  pairs_.assign(num_slots(vocabulary_.merges.size()), {0, kNone});
  for (size_t rank = 0; rank < vocabulary_.merges.size(); ++rank) {
    const BpeMerge& merge = vocabulary_.merges[rank];
    const uint32_t key = key_of(merge.left, merge.right);
    size_t slot = slot_of(key, pairs_.size());
    while (pairs_[slot].rank != kNone) slot = (slot + 1) & (pairs_.size() - 1);
    pairs_[slot] = {key, static_cast<uint32_t>(rank)};
  }
}

void BpeMerger::add_words() {
  words_.resize(num_slots(vocabulary_.tokens.size()));
  Scratch scratch;
  std::vector<int64_t> ids;
  for (size_t id = 0; id < vocabulary_.tokens.size(); ++id) {
    const std::string& token = vocabulary_.tokens[id];
    ids.clear();
    merge(token, ids, scratch);
    if (ids.size() != 1) continue;
    const size_t hash = std::hash<std::string_view>()(token);
    size_t slot = hash & (words_.size() - 1);
    while (words_[slot].id >= 0) slot = (slot + 1) & (words_.size() - 1);
    words_[slot] = {static_cast<uint32_t>(hash >> 32), static_cast<int32_t>(ids[0])};
  }
}

uint32_t BpeMerger::find_rank(int32_t left, int32_t right) const {
  const uint32_t key = key_of(left, right);
  size_t slot = slot_of(key, pairs_.size());
  while (pairs_[slot].rank != kNone && pairs_[slot].key != key) {
    slot = (slot + 1) & (pairs_.size() - 1);
  }
  return pairs_[slot].rank;
}

int32_t BpeMerger::find_word(std::string_view word) const {
  const size_t hash = std::hash<std::string_view>()(word);
  size_t slot = hash & (words_.size() - 1);
  for (; words_[slot].id >= 0; slot = (slot + 1) & (words_.size() - 1)) {
    const Word& found = words_[slot];
    if (found.hash == static_cast<uint32_t>(hash >> 32) &&
        vocabulary_.tokens[static_cast<size_t>(found.id)] == word) {
      return found.id;
    }
  }
  return -1;
}

void BpeMerger::encode(std::string_view word, std::vector<int64_t>& ids, Scratch& scratch) const {
  const int32_t id = find_word(word);
  if (id >= 0) {
    ids.push_back(id);
  } else {
    merge(word, ids, scratch);
  }
}

void BpeMerger::merge(std::string_view word, std::vector<int64_t>& ids, Scratch& scratch) const {
  std::vector<Scratch::Node>& nodes = scratch.nodes_;
  auto& heap = scratch.heap_;
  const std::greater<> least_first;
  const auto update_rank = [&](size_t at) {
    Scratch::Node& node = nodes[at];
    node.rank = node.next == kNowhere ? kNone : find_rank(node.id, nodes[node.next].id);
    if (node.rank == kNone) return;
    heap.emplace_back(node.rank, at);
    std::push_heap(heap.begin(), heap.end(), least_first);
  };
  nodes.clear();
  heap.clear();
  nodes.reserve(word.size());
  for (size_t i = 0; i < word.size(); ++i) {
    nodes.push_back({byte_id_[static_cast<uint8_t>(word[i])], kNone, i == 0 ? kNowhere : i - 1,
                     i + 1 == word.size() ? kNowhere : i + 1});
  }
  for (size_t i = 0; i < nodes.size(); ++i) update_rank(i);
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), least_first);
    const auto [rank, at] = heap.back();
    heap.pop_back();
    Scratch::Node& node = nodes[at];
    if (node.rank != rank) continue;
    node.id = vocabulary_.merges[rank].result;
    Scratch::Node& gone = nodes[node.next];
    gone.rank = kNone;
    node.next = gone.next;
    if (node.next != kNowhere) nodes[node.next].previous = at;
    update_rank(at);
    if (node.previous != kNowhere) update_rank(node.previous);
  }
  for (size_t at = 0; at < nodes.size(); at = nodes[at].next) ids.push_back(nodes[at].id);
}

}  // namespace shoal
