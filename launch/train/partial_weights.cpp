#include "launch/train/partial_weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <sstream>
#include <utility>
#include <vector>

#include "parallel/checkpoint/checkpoint_load.h"
#include "parallel/comm/on_rank_zero.h"
#include "runtime/base/text.h"

namespace shoal {
namespace {

constexpr size_t kMostListed = 20;

std::string renamed(const std::string& name, const config::TextMap& rename) {
  for (const auto& [before, after] : rename) {
    if (name.starts_with(before)) return after + name.substr(before.size());
  }
  return name;
}

/// The checkpoint's names by what the model calls them.
std::map<std::string, std::string> chosen_names(const Manifest& manifest,
                                                const InitFrom& init_from) {
  std::map<std::string, std::string> source_of;
  std::set<std::string> unmatched(init_from.take.begin(), init_from.take.end());
  for (const ManifestTensor& tensor : manifest.tensors) {
    if (tensor.name.starts_with("optimizer.")) continue;
    bool is_taken = init_from.take.empty();
    for (const std::string& pattern : init_from.take) {
      if (!matches_glob(tensor.name, pattern)) continue;
      is_taken = true;
      unmatched.erase(pattern);
    }
    if (!is_taken) continue;
    const auto [same, is_new] =
        source_of.emplace(renamed(tensor.name, init_from.rename), tensor.name);
    if (is_new) continue;
    throw Error(ExitCode::kMismatch,
                fmt::format("model.init_from.rename: '{}' and '{}' of the checkpoint would both be "
                            "'{}'",
                            same->second, tensor.name, same->first),
                "take one of the two only");
  }
  if (unmatched.empty()) return source_of;
  throw Error(ExitCode::kMismatch,
              fmt::format("model.init_from.take: no tensor of the checkpoint is called '{}'",
                          *unmatched.begin()),
              "`shoal inspect CKPT --tensors` lists their names");
}

/// This rank's weights, each unit by itself: those that the checkpoint has, by its names, and the
/// model's names of the rest.
struct Found {
  ModelWeights taken;
  std::vector<std::string> taken_names, missing;
};

Found find_weights(const BuiltModel& model, const std::map<std::string, std::string>& source_of) {
  Found found;
  const auto find = [&](const std::string& name, const torch::Tensor& value) {
    const auto source = source_of.find(name);
    if (source == source_of.end()) {
      found.missing.push_back(name);
    } else {
      found.taken.list.push_back({source->second, value, 0, {}, {}});
      found.taken_names.push_back(source->second);
    }
  };
  for (const Parameter& weight : weights_of(model).list) {
    const torch::Tensor value = weight.tensor.detach();
    if (!weight.is_stacked()) {
      find(weight.name, value);
      continue;
    }
    for (size_t row = 0; row < weight.unit_ids.size(); ++row) {
      find(name_of_unit(weight.name, weight.unit_ids[row]), value[static_cast<int64_t>(row)]);
    }
  }
  return found;
}

/// Over all ranks, each name once. Collective.
std::vector<std::string> gather_names(const std::vector<std::string>& own, Communicator& world) {
  std::set<std::string> names;
  for (const std::string& text : gather_text(world, join_words(own, "\n"))) {
    std::istringstream lines(text);
    for (std::string name; std::getline(lines, name);) names.insert(name);
  }
  return {names.begin(), names.end()};
}

std::string list_some(std::vector<std::string> names) {
  const size_t left_out = names.size() - std::min(names.size(), kMostListed);
  names.resize(names.size() - left_out);
  return join_words(names) + (left_out > 0 ? fmt::format(" and {} more", left_out) : "");
}

}  // namespace

std::string load_some_weights(const std::string& checkpoint, const InitFrom& init_from,
                              const BuiltModel& model, Communicator& world) {
  const std::map<std::string, std::string> source_of =
      chosen_names(read_manifest(checkpoint, world), init_from);
  Found found = find_weights(model, source_of);
  const std::vector<std::string> taken = gather_names(found.taken_names, world);
  const std::vector<std::string> random = gather_names(found.missing, world);
  if (taken.empty()) {
    throw Error(ExitCode::kMismatch,
                fmt::format("model.init_from: no weight of '{}' has a place in the model, which "
                            "wants {}",
                            checkpoint, list_some(random)),
                "look at the names of both and at model.init_from.rename");
  }
  load_checkpoint(checkpoint, found.taken, world, {.ignore_extra = true});
  std::string report =
      fmt::format(": {} taken", counted(static_cast<int64_t>(taken.size()), "weight"));
  if (!random.empty()) {
    report +=
        fmt::format(", {} with random values: {}",
                    counted(static_cast<int64_t>(random.size()), "weight"), list_some(random));
  }
  const size_t unused = source_of.size() - taken.size();
  if (unused > 0) {
    report += fmt::format("; {} of the checkpoint without a place in the model",
                          counted(static_cast<int64_t>(unused), "tensor"));
  }
  return report;
}

}  // namespace shoal
