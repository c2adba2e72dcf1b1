#include "runtime/data/images/image_decoders.h"

#include <png.h>

#include <array>
#include <csetjmp>
#include <cstdio>
#include <cstring>

namespace shoal {
namespace {

constexpr png_alloc_size_t kMostChunkBytes = 64 << 20;
// As of JPEG: else the pointers to the rows of a narrow image would take more than its pixels.
constexpr png_uint_32 kLongestSide = 65'535;

/// The file as libpng reads it, and why it stopped. libpng jumps back to where setjmp was called;
/// between the two there are plain values only.
struct PngInput {
  std::span<const std::byte> rest;
  std::array<char, 200> problem;
};

[[noreturn]] void stop_with(png_structp reader, const char* problem) {
  auto* input = static_cast<PngInput*>(png_get_error_ptr(reader));
  std::snprintf(input->problem.data(), input->problem.size(), "%s", problem);
  png_longjmp(reader, 1);
}

void read_bytes(png_structp reader, png_bytep out, size_t count) {
  auto* input = static_cast<PngInput*>(png_get_io_ptr(reader));
  if (count > input->rest.size()) png_error(reader, "the file ends too early");
  std::memcpy(out, input->rest.data(), count);
  input->rest = input->rest.subspan(count);
}

/// Warnings are about parts that are not read, such as colour profiles.
void pass_over_warning(png_structp /*reader*/, const char* /*warning*/) {}

/// A libpng reader, set up and torn down.
struct PngReader {
  explicit PngReader(PngInput& input)
      : reader(png_create_read_struct(PNG_LIBPNG_VER_STRING, &input, stop_with, pass_over_warning)),
        info(reader == nullptr ? nullptr : png_create_info_struct(reader)) {
    if (info == nullptr) return;
    png_set_read_fn(reader, &input, read_bytes);
    png_set_user_limits(reader, kLongestSide, kLongestSide);
    png_set_chunk_malloc_max(reader, kMostChunkBytes);
  }
  ~PngReader() { png_destroy_read_struct(&reader, &info, nullptr); }
  PngReader(const PngReader&) = delete;
  PngReader& operator=(const PngReader&) = delete;

  png_structp reader;
  png_infop info;
};

/// Reads the header and asks for three bytes a pixel; false after an error.
bool read_png_header(PngReader& png) {
  if (setjmp(png_jmpbuf(png.reader)) != 0) return false;
  png_read_info(png.reader, png.info);
  png_set_expand(png.reader);  // palettes and fewer than 8 bits
  png_set_scale_16(png.reader);
  png_set_gray_to_rgb(png.reader);
  png_set_strip_alpha(png.reader);
  png_set_interlace_handling(png.reader);
  png_read_update_info(png.reader, png.info);
  return true;
}

/// Fills the rows; false after an error.
bool read_png_rows(PngReader& png, png_bytepp rows) {
  if (setjmp(png_jmpbuf(png.reader)) != 0) return false;
  png_read_image(png.reader, rows);
  png_read_end(png.reader, nullptr);
  return true;
}

}  // namespace

InterleavedImage decode_png(std::span<const std::byte> file) {
  PngInput input{file, {}};
  InterleavedImage image;
  const auto failed = [&](const char* problem) {
    return InterleavedImage{.pixel_HWC = {}, .problem = problem};
  };
  PngReader png(input);
  if (png.info == nullptr) return failed("libpng has no memory");
  if (!read_png_header(png)) return failed(input.problem.data());
  image.height = png_get_image_height(png.reader, png.info);
  image.width = png_get_image_width(png.reader, png.info);
  image.problem = size_problem(image.height, image.width);
  if (!image.problem.empty()) return image;
  const auto row_bytes = static_cast<size_t>(image.width) * 3;
  if (png_get_rowbytes(png.reader, png.info) != row_bytes) return failed("of an unknown format");
  image.pixel_HWC.resize(row_bytes * static_cast<size_t>(image.height));
  std::vector<png_bytep> rows;
  rows.reserve(static_cast<size_t>(image.height));
  for (int64_t y = 0; y < image.height; ++y) {
    rows.push_back(image.pixel_HWC.data() + static_cast<size_t>(y) * row_bytes);
  }
  if (!read_png_rows(png, rows.data())) return failed(input.problem.data());
  return image;
}

}  // namespace shoal
