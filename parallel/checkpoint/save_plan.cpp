#include "parallel/checkpoint/save_plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <utility>

#include "parallel/checkpoint/manifest_cursor.h"
#include "runtime/base/error.h"

namespace shoal {
namespace {

struct Held {
  SafetensorsEntry entry;
  uint64_t bytes = 0;
  std::vector<size_t> holders;
};

SafetensorsEntry read_entry(ManifestCursor& cursor) {
  SafetensorsEntry entry;
  entry.name = cursor.string();
  cursor.expect(" ");
  entry.dtype = parse_dtype(cursor.string()).value();
  while (cursor.accept(" ")) entry.shape.push_back(cursor.integer());
  cursor.expect("\n");
  return entry;
}

void add_entry(std::map<std::string, Held>& held, SafetensorsEntry entry, size_t rank) {
  Held& known = held[entry.name];
  if (known.holders.empty()) {
    known.bytes = tensor_bytes(entry.dtype, entry.shape).value();
    known.entry = std::move(entry);
  } else if (known.entry.dtype != entry.dtype || known.entry.shape != entry.shape) {
    throw Error(ExitCode::kDivergence,
                fmt::format("tensor '{}' is {} on rank {} and {} on rank {}", entry.name,
                            describe_tensor(known.entry.dtype, known.entry.shape), known.holders[0],
                            describe_tensor(entry.dtype, entry.shape), rank));
  }
  known.holders.push_back(rank);
}

}  // namespace

std::string describe_entries(const std::vector<SafetensorsEntry>& entries) {
  std::string text;
  for (const SafetensorsEntry& entry : entries) {
    text += fmt::format("{} \"{}\"", json_quote(entry.name), dtype_name(entry.dtype));
    for (const int64_t size : entry.shape) text += fmt::format(" {}", size);
    text += '\n';
  }
  return text;
}

SavePlan plan_save(const std::vector<std::string>& lists) {
  std::map<std::string, Held> held;
  for (size_t rank = 0; rank < lists.size(); ++rank) {
    ManifestCursor cursor(lists[rank], fmt::format("tensors of rank {}", rank));
    while (cursor.place() < lists[rank].size()) add_entry(held, read_entry(cursor), rank);
  }
  std::vector<const Held*> by_size;
  for (const auto& [name, item] : held) by_size.push_back(&item);
  std::stable_sort(by_size.begin(), by_size.end(),
                   [](const Held* a, const Held* b) { return a->bytes > b->bytes; });
  SavePlan plan(lists.size());
  std::vector<uint64_t> load(lists.size(), 0);
  for (const Held* item : by_size) {
    const size_t rank = *std::min_element(item->holders.begin(), item->holders.end(),
                                          [&](size_t a, size_t b) { return load[a] < load[b]; });
    load[rank] += item->bytes;
    plan[rank].push_back(item->entry);
  }
  for (auto& entries : plan) {
    std::sort(entries.begin(), entries.end(),
              [](const auto& a, const auto& b) { return a.name < b.name; });
  }
  return plan;
}

}  // namespace shoal
