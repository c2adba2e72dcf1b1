#include "parallel/gpu_binding.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "runtime/error.h"
#include "runtime/suggest.h"

namespace shoal {
namespace {

using Json = nlohmann::json;

std::string to_text(const RankBinding& binding) {
  const Json value = {{"rank", binding.rank},       {"host", binding.host},
                      {"machine", binding.machine}, {"local_rank", binding.local_rank},
                      {"gpu", binding.gpu},         {"pci_id", binding.pci_id},
                      {"threads", binding.threads}};
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

RankBinding from_text(const std::string& text) {
  const Json value = Json::parse(text);
  RankBinding binding;
  binding.rank = value.at("rank");
  binding.host = value.at("host");
  binding.machine = value.at("machine");
  binding.local_rank = value.at("local_rank");
  binding.gpu = value.at("gpu");
  binding.pci_id = value.at("pci_id");
  binding.threads = value.at("threads");
  return binding;
}

std::string list_ranks(const std::vector<const RankBinding*>& bindings) {
  std::vector<std::string> words;
  words.reserve(bindings.size());
  for (const RankBinding* binding : bindings) {
    words.push_back(fmt::format("{} on {}", binding->rank, binding->host));
  }
  return join_words(words);
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

int64_t gpu_of_local_rank(int64_t local_rank, int64_t num_visible, bool share_gpu) {
  if (num_visible == 1 || local_rank < num_visible) return num_visible == 1 ? 0 : local_rank;
  if (share_gpu && num_visible > 0) return local_rank % num_visible;
  throw Error(
      ExitCode::kTopology,
      fmt::format("device: cuda: rank {} of this machine needs GPU {}, but {} visible", local_rank,
                  local_rank, num_visible == 0 ? "none is" : counted(num_visible, "GPU") + " are"),
      num_visible == 0 ? "look at nvidia-smi and at CUDA_VISIBLE_DEVICES, or set run.device=cpu"
                       : "start at most " + counted(num_visible, "rank") + " on a machine");
}

std::vector<RankBinding> gather_bindings(Communicator& control, const RankBinding& own) {
  std::vector<RankBinding> bindings;
  for (const std::string& text : gather_text(control, to_text(own))) {
    bindings.push_back(from_text(text));
  }
  return bindings;
}

void check_bindings(const std::vector<RankBinding>& bindings, bool share_gpu) {
  check_one_kind(bindings);
  if (share_gpu) return;
  std::map<std::pair<std::string, std::string>, std::vector<const RankBinding*>> ranks_of_gpu;
  for (const RankBinding& binding : bindings) {
    if (binding.gpu >= 0) ranks_of_gpu[{binding.machine, binding.pci_id}].push_back(&binding);
  }
  std::vector<std::string> shared;
  for (const auto& [gpu, ranks] : ranks_of_gpu) {
    if (ranks.size() > 1) {
      shared.push_back(fmt::format("GPU {} has ranks {}", gpu.second, list_ranks(ranks)));
    }
  }
  if (shared.empty()) return;
  throw Error(ExitCode::kTopology,
              "device: cuda: more than one rank on a GPU: " + join_words(shared, "; "),
              "start at most as many ranks on a machine as it has GPUs, let the launcher show each "
              "rank its own, or set parallel.share_gpu=true (NCCL 2.30 or newer)");
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
