#include "parallel/comm/gpu_binding.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/text.h"

namespace shoal {
namespace {

using Json = nlohmann::json;

std::string list_ranks(const std::vector<const RankBinding*>& bindings) {
  std::vector<std::string> words;
  words.reserve(bindings.size());
  for (const RankBinding* binding : bindings) {
    words.push_back(fmt::format("{} on {}", binding->rank, binding->host));
  }
  return join_words(words);
}

/// By machine and PCI id.
using RanksOfGpus = std::map<std::pair<std::string, std::string>, std::vector<const RankBinding*>>;

RanksOfGpus ranks_of_gpus(const std::vector<RankBinding>& bindings) {
  RanksOfGpus ranks_of_gpu;
  for (const RankBinding& binding : bindings) {
    if (binding.gpu >= 0) ranks_of_gpu[{binding.machine, binding.pci_id}].push_back(&binding);
  }
  return ranks_of_gpu;
}

void check_one_kind(const std::vector<RankBinding>& bindings) {
  std::vector<const RankBinding*> without;
  for (const RankBinding& binding : bindings) {
    if (binding.gpu < 0) without.push_back(&binding);
  }
  if (without.empty() || without.size() == bindings.size()) return;
  throw Error(
      ExitCode::kTopology,
      fmt::format("run.device: {} of {} have no GPU: {}", without.size(),
                  counted(static_cast<int64_t>(bindings.size()), "rank"), list_ranks(without)),
      "give every rank a GPU, or set run.device=cpu");
}

}  // namespace

std::string machine_id(const std::string& path) {
  std::ifstream file(path);
  std::string id;
  if (!std::getline(file, id) || id.empty()) {
    throw DataError(path + ": cannot read the machine's boot id", "mount /proc in the container");
  }
  return id;
}

std::vector<RankBinding> gather_bindings(Communicator& control, const RankBinding& own) {
  const Json fields = {own.rank, own.host,   own.machine, own.local_rank,
                       own.gpu,  own.pci_id, own.threads};
  const std::string text = fields.dump(-1, ' ', false, Json::error_handler_t::replace);
  std::vector<RankBinding> bindings;
  for (const std::string& of_rank : gather_text(control, text)) {
    const Json json = Json::parse(of_rank);
    bindings.push_back(
        {json.at(0), json.at(1), json.at(2), json.at(3), json.at(4), json.at(5), json.at(6)});
  }
  return bindings;
}

bool share_gpus(const std::vector<RankBinding>& bindings) {
  return std::ranges::any_of(ranks_of_gpus(bindings),
                             [](const auto& entry) { return entry.second.size() > 1; });
}

void check_bindings(const std::vector<RankBinding>& bindings, bool share_gpu) {
  check_one_kind(bindings);
  if (share_gpu) return;
  std::vector<std::string> shared;
  for (const auto& [gpu, ranks] : ranks_of_gpus(bindings)) {
    if (ranks.size() > 1) {
      shared.push_back(fmt::format("GPU {} has ranks {}", gpu.second, list_ranks(ranks)));
    }
  }
  if (shared.empty()) return;
  throw Error(ExitCode::kTopology,
              "device: cuda: more than one rank on a GPU: " + join_words(shared, "; "),
              "start at most as many ranks on a machine as it has GPUs, let the launcher show each "
              "rank its own, set parallel.share_gpu=true (NCCL 2.30 or newer), or run.device=cpu, "
              "where run.device is auto too");
}

std::string binding_table(const std::vector<RankBinding>& bindings) {
  size_t width = 4;
  for (const RankBinding& binding : bindings) width = std::max(width, binding.host.size());
  std::string table =
      fmt::format("rank  {:<{}}  local  gpu  {:<12}  threads", "host", width, "PCI id");
  for (const RankBinding& binding : bindings) {
    const bool has_gpu = binding.gpu >= 0;
    table += fmt::format("\n{:>4}  {:<{}}  {:>5}  {:>3}  {:<12}  {:>7}", binding.rank, binding.host,
                         width, binding.local_rank, has_gpu ? std::to_string(binding.gpu) : "cpu",
                         has_gpu ? binding.pci_id : "-", binding.threads);
  }
  return table;
}

}  // namespace shoal
