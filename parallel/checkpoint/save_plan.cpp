#include "parallel/checkpoint/save_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include "runtime/base/error.h"

namespace shoal {
namespace {

/// For length, padding and metadata of a shard's header.
constexpr uint64_t kSpareHeaderBytes = uint64_t{64} << 10;

struct Held {
  SafetensorsEntry entry;
  uint64_t bytes = 0;
  std::vector<size_t> holders;
};

SafetensorsEntry read_entry(const std::string& line) {
  const auto json = nlohmann::json::parse(line);
  return {json.at(0), parse_dtype(json.at(1).get<std::string>()).value(), json.at(2), 0, 0};
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
    text += nlohmann::json{entry.name, dtype_name(entry.dtype), entry.shape}.dump() + "\n";
  }
  return text;
}

SavePlan plan_save(const std::vector<std::string>& lists) {
  std::map<std::string, Held> held;
  for (size_t rank = 0; rank < lists.size(); ++rank) {
    std::istringstream lines(lists[rank]);
    for (std::string line; std::getline(lines, line);) add_entry(held, read_entry(line), rank);
  }
  std::vector<const Held*> by_size;
  for (const auto& [name, item] : held) by_size.push_back(&item);
  std::ranges::stable_sort(by_size, std::greater{}, &Held::bytes);
  SavePlan plan(lists.size());
  std::vector<uint64_t> load(lists.size(), 0);
  for (const Held* item : by_size) {
    const auto load_of = [&](size_t holder) { return load[holder]; };
    const size_t rank = *std::ranges::min_element(item->holders, {}, load_of);
    load[rank] += item->bytes;
    plan[rank].push_back(item->entry);
  }
  for (auto& entries : plan) {
    std::ranges::sort(entries, {}, &SafetensorsEntry::name);
  }
  return plan;
}

std::vector<PlannedShard> plan_shards(SavePlan plan, uint64_t most_header_bytes) {
  std::vector<PlannedShard> shards;
  for (size_t rank = 0; rank < plan.size(); ++rank) {
    uint64_t header_bytes = most_header_bytes;
    for (SafetensorsEntry& entry : plan[rank]) {
      const uint64_t bytes = safetensors_entry_bytes(entry);
      if (header_bytes + bytes > most_header_bytes) {
        shards.push_back({static_cast<int64_t>(rank), {}});
        header_bytes = kSpareHeaderBytes;
      }
      header_bytes += bytes;
      shards.back().entries.push_back(std::move(entry));
    }
  }
  return shards;
}

}  // namespace shoal
