#include "launch/inspect/inspect.h"

#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "launch/inspect/ckpt.h"
#include "launch/inspect/sparsity_maps.h"
#include "launch/inspect/tensor_summary.h"
#include "launch/maps/activation_maps.h"
#include "launch/maps/gate_maps.h"
#include "launch/maps/image_maps.h"
#include "launch/report/load_map.h"
#include "launch/runs/expert_records.h"
#include "parallel/checkpoint/checkpoint_reader.h"
#include "runtime/base/json_text.h"
#include "runtime/base/text.h"
#include "runtime/files/file_system.h"

namespace shoal {
namespace {

using Json = nlohmann::ordered_json;

Json overview(const std::string& path, const Manifest& manifest) {
  uint64_t numbers = 0;
  for (const ManifestTensor& tensor : manifest.tensors) {
    numbers += tensor.bytes / dtype_bytes(tensor.dtype);
  }
  Json json = describe_checkpoint(path, manifest);
  json["numbers"] = numbers;
  json["parent"] = manifest.parent;
  json["written_by"] = manifest.written_by;
  json["values"] = Json::object();
  for (const ManifestValue& value : manifest.values) {
    json["values"][value.name] =
        std::visit([](const auto& stored) { return Json(stored); }, value.value);
  }
  return json;
}

void print_overview(const Json& json, std::ostream& out) {
  const auto text_of = [](const Json& value) {
    return value.is_string() ? value.get<std::string>() : value.dump();
  };
  for (const auto& [key, value] : json.items()) {
    if (!value.is_object()) {
      out << fmt::format("{:<12} {}\n", key, text_of(value));
      continue;
    }
    out << key << "\n";
    for (const auto& [name, held] : value.items()) {
      out << fmt::format("  {:<40} {}\n", name, text_of(held));
    }
  }
}

Json list_tensors(const CheckpointReader& reader) {
  Json rows = Json::array();
  for (const ManifestTensor& tensor : reader.manifest().tensors) {
    const TensorSummary summary = summarise(reader, tensor);
    rows.push_back(Json{{"name", tensor.name},
                        {"dtype", dtype_name(tensor.dtype)},
                        {"shape", tensor.shape},
                        {"bytes", tensor.bytes},
                        {"min", summary.min},
                        {"max", summary.max},
                        {"norm", summary.norm},
                        {"not_finite", summary.num_not_finite}});
  }
  return rows;
}

void print_tensors(const Json& rows, std::ostream& out) {
  out << fmt::format("{:>11} {:>11} {:>11} {:>12}  {:<5} name shape\n", "min", "max", "norm",
                     "bytes", "dtype");
  for (const Json& row : rows) {
    const auto bad = row["not_finite"].get<int64_t>();
    out << fmt::format(
        "{:>11.4g} {:>11.4g} {:>11.4g} {:>12}  {:<5} {} {}{}\n", row["min"].get<double>(),
        row["max"].get<double>(), row["norm"].get<double>(), row["bytes"].get<uint64_t>(),
        row["dtype"].get<std::string>(), row["name"].get<std::string>(), row["shape"].dump(),
        bad > 0 ? fmt::format("  {} not finite", counted(bad, "number")) : "");
  }
}

/// One row for each tensor that differs between `a` and `b`, or is missing in one.
Json list_differences(const CheckpointReader& a, const CheckpointReader& b) {
  Json rows = Json::array();
  const auto add = [&rows](const ManifestTensor& tensor, const std::string& difference) {
    rows.push_back(Json{{"name", tensor.name}, {"difference", difference}});
  };
  for (const ManifestTensor& tensor : a.manifest().tensors) {
    const ManifestTensor* other = b.manifest().find_tensor(tensor.name);
    if (other == nullptr) {
      add(tensor, "only in the first");
    } else if (other->dtype != tensor.dtype || other->shape != tensor.shape) {
      add(tensor, describe_tensor(tensor.dtype, tensor.shape) + " and " +
                      describe_tensor(other->dtype, other->shape));
    } else {
      const TensorDifference found = compare(a, tensor, b, *other);
      if (found.num_different == 0) continue;
      rows.push_back(Json{{"name", tensor.name},
                          {"different", found.num_different},
                          {"max_abs", found.max_abs},
                          {"norm_ratio", found.norm_ratio}});
    }
  }
  for (const ManifestTensor& tensor : b.manifest().tensors) {
    if (a.manifest().find_tensor(tensor.name) == nullptr) add(tensor, "only in the second");
  }
  return rows;
}

void print_differences(const Json& rows, std::ostream& out) {
  for (const Json& row : rows) {
    const auto name = row["name"].get<std::string>();
    if (row.contains("difference")) {
      out << fmt::format("{}: {}\n", name, row["difference"].get<std::string>());
    } else {
      out << fmt::format("{}: {} apart, by at most {:.4g}; |a - b| / |a| = {:.4g}\n", name,
                         counted(row["different"].get<int64_t>(), "number"),
                         row["max_abs"].get<double>(), row["norm_ratio"].get<double>());
    }
  }
  out << (rows.empty()       ? "all tensors are equal"
          : rows.size() == 1 ? "1 tensor differs"
                             : fmt::format("{} tensors differ", rows.size()))
      << "\n";
}

ExitCode inspect_differences(const InspectArguments& arguments, const CheckpointReader& reader,
                             std::ostream& out) {
  CheckpointChoice choice = arguments.checkpoint;
  choice.path = arguments.diff;
  const CheckpointReader other = open_reader(choice);
  const Json rows = list_differences(reader, other);
  const Json json{
      {"a", reader.path()}, {"b", other.path()}, {"equal", rows.empty()}, {"differences", rows}};
  if (arguments.json) {
    out << json_text(json) << "\n";
  } else {
    print_differences(rows, out);
  }
  return rows.empty() ? ExitCode::kOk : kDiffers;
}

void draw_heat_map(const CheckpointReader& reader, const std::string& file) {
  if (!file.ends_with(".svg")) {
    throw Error(ExitCode::kUsage,
                fmt::format("--heat-map '{}': the picture is an SVG, name it so: {}.svg", file,
                            std::filesystem::path(file).replace_extension().string()));
  }
  const std::vector<LayerLoads> layers = read_load_history(reader.path(), reader.manifest().step);
  // The checkpoint is RUN/ckpt/step-XXXXXXXX.
  const std::filesystem::path run =
      std::filesystem::canonical(reader.path()).parent_path().parent_path();
  const Json name_in_utf8 = Json::parse(json_text(Json(run.filename().string())));
  PosixFileSystem files;
  replace_file(files, file,
               heat_map_svg("Load of the units of " + name_in_utf8.get<std::string>(), layers));
}

ExitCode inspect_experts(const InspectArguments& arguments, const CheckpointReader& reader,
                         std::ostream& out) {
  const Json records = read_expert_records(reader.path(), reader.manifest().step);
  if (!arguments.heat_map.empty()) draw_heat_map(reader, arguments.heat_map);
  out << (arguments.json ? json_text(records) + "\n" : expert_text(records));
  if (!arguments.json && !arguments.heat_map.empty()) {
    out << fmt::format("\nheat map of the logged steps up to {}: {}\n",
                       records["step"].get<int64_t>(), arguments.heat_map);
  }
  return ExitCode::kOk;
}

}  // namespace

ExitCode inspect(const InspectArguments& arguments, const Environment& environment,
                 std::ostream& out) {
  const CheckpointChoice& choice = arguments.checkpoint;
  if (!arguments.gates.empty()) {
    return draw_gate_maps(
        {choice, arguments.gates, arguments.samples, arguments.prompt, arguments.json}, environment,
        out);
  }
  if (!arguments.activation_maps.empty()) {
    return draw_activation_maps(
        {choice, arguments.activation_maps, arguments.images, arguments.json}, environment, out);
  }
  if (!arguments.expert_maps.empty()) {
    return draw_expert_maps({choice, arguments.expert_maps, arguments.images, arguments.json},
                            environment, out);
  }
  if (arguments.sparsity) return draw_sparsity(choice, arguments.page, arguments.json, out);
  const CheckpointReader reader = open_reader(choice);
  if (arguments.experts) return inspect_experts(arguments, reader, out);
  if (!arguments.diff.empty()) return inspect_differences(arguments, reader, out);
  Json json = overview(reader.path(), reader.manifest());
  if (arguments.tensors) json["list"] = list_tensors(reader);
  if (arguments.json) {
    out << json_text(json) << "\n";
  } else if (arguments.tensors) {
    print_tensors(json["list"], out);
  } else {
    print_overview(json, out);
  }
  return ExitCode::kOk;
}

}  // namespace shoal
