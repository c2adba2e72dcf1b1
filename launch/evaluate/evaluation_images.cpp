#include "launch/evaluate/evaluation_images.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "launch/pages/picture.h"
#include "parallel/comm/on_rank_zero.h"
#include "runtime/data/loader/loader.h"
#include "runtime/files/new_folder.h"

namespace shoal {
namespace {

constexpr int64_t kGap = 4;  ///< between the images of a sample, pixels

/// Arranges the strips in columns such that the sheet is about square.
Picture contact_sheet(const std::vector<Picture>& strips) {
  const Picture& strip = strips.front();
  const double square = std::sqrt(static_cast<double>(std::ssize(strips) * strip.height) /
                                  static_cast<double>(strip.width));
  return tile(strips, std::clamp<int64_t>(std::llround(square), 1, std::ssize(strips)), 4 * kGap);
}

void write_images(FileSystem& files, const std::string& folder,
                  const std::vector<Picture>& strips) {
  for (size_t i = 0; i < strips.size(); ++i) {
    replace_file(files, fmt::format("{}/image-{:03}.png", folder, i), png_bytes(strips[i]));
  }
  if (strips.empty()) return;
  replace_file(files, folder + "/contact_sheet.png", png_bytes(contact_sheet(strips)));
}

}  // namespace

DrawnImages draw_evaluation_images(const ImagesRequest& request, const EvaluationParts& parts,
                                   int64_t step, FileSystem& files) {
  Communicator& world = *parts.grid.world;
  on_rank_zero(world, [&] {
    require_free_folder("--images", request.folder);
    return "";
  });
  EvalLoader loader(*parts.data.samples, loader_settings(parts.recipe, parts.data, parts.grid));
  DrawnImages drawn;
  std::vector<Picture> strips;
  while (drawn.count < request.count) {
    std::optional<Batch> batch = loader.next();
    if (!batch) break;
    batch->context.step = step;
    const int64_t count = std::min(batch->context.samples_in_micro, request.count - drawn.count);
    const std::vector<PictureColumn> columns = gather_pictures(parts, *batch, drawn.count, count);
    if (columns.empty()) {
      throw Error(ExitCode::kUsage,
                  fmt::format("--images: task {} draws no pictures", parts.recipe.task.name()),
                  "leave --images out");
    }
    drawn.columns.clear();
    std::vector<std::vector<Picture>> images(static_cast<size_t>(count));
    for (const PictureColumn& column : columns) {
      drawn.columns.push_back(column.name);
      for (int64_t i = 0; i < count; ++i) {
        images[static_cast<size_t>(i)].push_back(enlarge_small(picture_of(column.image_bCHW[i])));
      }
    }
    for (const auto& row : images) strips.push_back(tile(row, std::ssize(row), kGap));
    drawn.count += count;
  }
  parts.grid.throw_if_failed();
  on_rank_zero(world, [&] {
    fill_folder(files, request.folder, [&] { write_images(files, request.folder, strips); });
    return "";
  });
  return drawn;
}

}  // namespace shoal
