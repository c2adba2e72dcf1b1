#include "launch/data/data.h"

#include <fmt/format.h>

#include <chrono>
#include <filesystem>

#include "launch/job/print_result.h"
#include "runtime/base/text.h"
#include "runtime/data/shards/shard_index.h"
#include "runtime/data/shards/verify_shards.h"
#include "runtime/files/new_folder.h"

namespace shoal {
namespace {

/// Lists shards, including those in folders.
std::vector<std::string> named_shards(const std::vector<std::string>& paths) {
  std::vector<std::string> shards;
  for (const std::string& path : paths) {
    if (!std::filesystem::is_directory(path)) {
      shards.push_back(path);
      continue;
    }
    const std::vector<std::string> inside = shards_in(path, "name shards, or a folder of them");
    shards.insert(shards.end(), inside.begin(), inside.end());
  }
  return shards;
}

}  // namespace

ExitCode pack(const PackArguments& arguments, std::ostream& out) {
  const PackPlan& plan = arguments.plan;
  require_free_folder("--out", plan.out);
  const auto start = std::chrono::steady_clock::now();
  PosixFileSystem files;
  PackedShards packed;
  fill_folder(files, plan.out, [&] { packed = pack_images(plan, files); });
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const double mb_per_second = static_cast<double>(packed.bytes) / 1e6 / seconds;
  print_result(out, arguments.json,
               {{"path", plan.out},
                {"shards", packed.num_shards},
                {"samples", packed.num_samples},
                {"bytes", packed.bytes},
                {"seconds", seconds},
                {"mb_per_second", mb_per_second}},
               fmt::format("{}: {} in {}, {} bytes, {:.1f} MB/s\n", plan.out,
                           counted(packed.num_samples, "image"),
                           counted(packed.num_shards, "shard"), packed.bytes, mb_per_second));
  return ExitCode::kOk;
}

ExitCode verify_data(const VerifyArguments& arguments, std::ostream& out) {
  const VerifiedShards verified = verify_shards(named_shards(arguments.paths), arguments.decodes);
  std::string text;
  for (const std::string& finding : verified.findings) text += finding + "\n";
  text += fmt::format(
      "{}, {}, {} bytes: {}\n", counted(verified.num_shards, "shard"),
      counted(verified.num_samples, "sample"), verified.bytes,
      verified.findings.empty() ? "valid" : counted(std::ssize(verified.findings), "finding"));
  print_result(out, arguments.json,
               {{"shards", verified.num_shards},
                {"samples", verified.num_samples},
                {"bytes", verified.bytes},
                {"findings", verified.findings}},
               text);
  if (verified.findings.empty()) return ExitCode::kOk;
  throw DataError(verified.findings.front(),
                  std::ssize(verified.findings) < kMostFindings
                      ? ""
                      : fmt::format("verifying ended at {} findings", kMostFindings));
}

}  // namespace shoal
