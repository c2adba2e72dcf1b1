#include "launch/inspect/ckpt.h"

#include <fmt/format.h>

#include <set>
#include <vector>

#include "launch/job/print_result.h"
#include "launch/runs/run_folder.h"
#include "parallel/checkpoint/checkpoint_folder.h"
#include "parallel/checkpoint/checkpoint_reader.h"
#include "runtime/base/text.h"
#include "runtime/records/metrics.h"

namespace shoal {
namespace {

using Json = nlohmann::ordered_json;

/// Union of the names in two sorted lists.
template <typename Item>
std::set<std::string> all_names(const std::vector<Item>& a, const std::vector<Item>& b) {
  std::set<std::string> names;
  for (const Item& item : a) names.insert(item.name);
  for (const Item& item : b) names.insert(item.name);
  return names;
}

std::string tensor_text(const CheckpointReader& reader, const std::string& name) {
  const ManifestTensor* tensor = reader.manifest().find_tensor(name);
  if (tensor == nullptr) return "none";
  return fmt::format("{} sha256:{:.16}", describe_tensor(tensor->dtype, tensor->shape),
                     reader.tensor_sha256(*tensor));
}

std::string value_text(const Manifest& manifest, const std::string& name) {
  const ManifestValue* found = manifest.find_value(name);
  if (found == nullptr) return "none";
  if (const auto* real = std::get_if<double>(&found->value)) return hex_float(*real);
  if (const auto* integer = std::get_if<int64_t>(&found->value)) return std::to_string(*integer);
  return json_quote(std::get<std::string>(found->value));
}

/// One object per difference; "a" and "b" are the two checkpoints.
Json find_differences(const CheckpointReader& a, const CheckpointReader& b) {
  const Manifest &x = a.manifest(), &y = b.manifest();
  Json differences = Json::array();
  const auto add = [&](const std::string& what, const std::string& in_a, const std::string& in_b) {
    if (in_a != in_b) differences.push_back(Json{{"what", what}, {"a", in_a}, {"b", in_b}});
  };
  add("step", std::to_string(x.step), std::to_string(y.step));
  add("samples", std::to_string(x.samples), std::to_string(y.samples));
  for (const std::string& name : all_names(x.tensors, y.tensors)) {
    add("tensor " + name, tensor_text(a, name), tensor_text(b, name));
  }
  for (const std::string& name : all_names(x.values, y.values)) {
    add("value " + name, value_text(x, name), value_text(y, name));
  }
  return differences;
}

}  // namespace

Json describe_checkpoint(const std::string& path, const Manifest& manifest) {
  return {{"path", path},
          {"step", manifest.step},
          {"samples", manifest.samples},
          {"score", or_null<Json>(manifest.score)},
          {"run_id", manifest.run_id},
          {"tensors", manifest.tensors.size()},
          {"files", manifest.files.size()},
          {"bytes", manifest.total_bytes()}};
}

ExitCode checkpoint_verify(const CheckpointArguments& arguments, std::ostream& out) {
  std::string path = arguments.checkpoint.path;
  try {
    path = choose_checkpoint(arguments.checkpoint);
    const CheckpointReader reader(path);
    reader.verify_data();
    const Manifest& manifest = reader.manifest();
    Json json = describe_checkpoint(path, manifest);
    if (arguments.json) {
      json["valid"] = true;
      out << json_text(json) << "\n";
    } else {
      out << fmt::format("{}: valid: step {}, {}, {} bytes in {}\n", path, manifest.step,
                         counted(std::ssize(manifest.tensors), "tensor"), manifest.total_bytes(),
                         counted(std::ssize(manifest.files), "file"));
    }
    return ExitCode::kOk;
  } catch (const Error& error) {
    if (!arguments.json) throw;
    Json json{{"path", path}, {"valid", false}, {"error", error.what()}};
    if (error.code() != ExitCode::kCheckpoint) json["valid"] = nullptr;  // nobody knows
    out << json_text(json) << "\n";
    return error.code();
  }
}

ExitCode checkpoint_list(const CheckpointArguments& arguments, std::ostream& out) {
  require_path(arguments.checkpoint.path);
  Json rows = Json::array();
  ExitCode code = ExitCode::kOk;
  for (const std::string& path : list_checkpoint_paths(arguments.checkpoint.path)) {
    try {
      rows.push_back(describe_checkpoint(path, CheckpointReader(path).manifest()));
    } catch (const Error& error) {
      const bool is_given =
          path.size() <= arguments.checkpoint.path.size();  // it holds none to list
      if (is_given && !arguments.json) throw;
      rows.push_back(Json{{"path", path}, {"error", error.what()}, {"exit_code", error.code()}});
      code = error.code();
    }
  }
  if (arguments.json) {
    out << json_text(Json{{"checkpoints", rows}}) << "\n";
    return code;
  }
  out << fmt::format("{:>10} {:>12} {:>10} {:>8} {:>6} {:>14}  path\n", "step", "samples", "score",
                     "tensors", "files", "bytes");
  for (const Json& row : rows) {
    if (row.contains("error")) {
      const bool is_damaged = row["exit_code"] == ExitCode::kCheckpoint;
      out << (is_damaged ? "  damaged: " : "  not read: ") << row["error"].get<std::string>()
          << "\n";
      continue;
    }
    const std::string score =
        row["score"].is_null() ? "-" : fmt::format("{:.4f}", row["score"].get<double>());
    out << fmt::format("{:>10} {:>12} {:>10} {:>8} {:>6} {:>14}  {}\n", row["step"].get<int64_t>(),
                       row["samples"].get<int64_t>(), score, row["tensors"].get<size_t>(),
                       row["files"].get<size_t>(), row["bytes"].get<uint64_t>(),
                       row["path"].get<std::string>());
  }
  return code;
}

ExitCode checkpoint_diff(const CheckpointArguments& arguments, std::ostream& out) {
  CheckpointChoice other = arguments.checkpoint;
  other.path = arguments.other;
  const CheckpointReader a = open_reader(arguments.checkpoint), b = open_reader(other);
  const Json differences = find_differences(a, b);
  const bool are_equal = differences.empty();
  std::string text = "a: " + a.path() + "\nb: " + b.path() + "\n";
  for (const Json& item : differences) {
    text += fmt::format("{}\n  a: {}\n  b: {}\n", item["what"].get<std::string>(),
                        item["a"].get<std::string>(), item["b"].get<std::string>());
  }
  text += are_equal ? "equal\n" : fmt::format("{} differences\n", differences.size());
  print_result(
      out, arguments.json,
      {{"a", a.path()}, {"b", b.path()}, {"equal", are_equal}, {"differences", differences}}, text);
  return are_equal ? ExitCode::kOk : kDiffers;
}

ExitCode checkpoint_digest(const CheckpointArguments& arguments, std::ostream& out) {
  const CheckpointReader reader = open_reader(arguments.checkpoint);
  const std::string digest = content_digest(reader);
  print_result(out, arguments.json,
               {{"path", reader.path()}, {"step", reader.manifest().step}, {"digest", digest}},
               digest + "\n");
  return ExitCode::kOk;
}

}  // namespace shoal
