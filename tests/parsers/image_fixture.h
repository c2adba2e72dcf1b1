#pragma once

#include <cstdio>  // jpeglib.h needs size_t and FILE

#include <jpeglib.h>
#include <png.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>
#include <vector>

namespace shoal::testing {

struct JpegWish {
  int64_t height = 16, width = 24;
  J_COLOR_SPACE stored = JCS_RGB;  ///< JCS_RGB is stored as YCbCr, as usual
  bool is_progressive = false;
  bool has_a_scan_per_coefficient = false;  ///< progressive, 190 scans of three components
};

/// The averages of all components, then each coefficient of each alone.
inline std::vector<jpeg_scan_info> scan_per_coefficient() {
  std::vector<jpeg_scan_info> scans{{3, {0, 1, 2, 0}, 0, 0, 0, 0}};
  for (int component = 0; component < 3; ++component) {
    for (int k = 1; k < 64; ++k) scans.push_back({1, {component, 0, 0, 0}, k, k, 0, 0});
  }
  return scans;
}

/// A JPEG file of best quality whose values are `value_HWC`, in the colours of `wish.stored`.
inline std::string jpeg_of(const std::vector<uint8_t>& value_HWC, const JpegWish& wish) {
  jpeg_compress_struct state{};
  jpeg_error_mgr errors;
  state.err = jpeg_std_error(&errors);
  jpeg_create_compress(&state);
  unsigned char* bytes = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&state, &bytes, &size);
  state.image_height = static_cast<JDIMENSION>(wish.height);
  state.image_width = static_cast<JDIMENSION>(wish.width);
  state.in_color_space = wish.stored;
  state.input_components = static_cast<int>(std::ssize(value_HWC) / (wish.height * wish.width));
  jpeg_set_defaults(&state);
  jpeg_set_quality(&state, 100, TRUE);
  for (int i = 0; i < state.num_components; ++i) {
    state.comp_info[i].h_samp_factor = state.comp_info[i].v_samp_factor = 1;
  }
  if (wish.is_progressive) jpeg_simple_progression(&state);
  const std::vector<jpeg_scan_info> scans = scan_per_coefficient();
  if (wish.has_a_scan_per_coefficient) {
    state.scan_info = scans.data();
    state.num_scans = static_cast<int>(scans.size());
  }
  jpeg_start_compress(&state, TRUE);
  const auto stride = static_cast<size_t>(wish.width * state.input_components);
  while (state.next_scanline < state.image_height) {
    auto* row = const_cast<JSAMPROW>(value_HWC.data() + state.next_scanline * stride);
    jpeg_write_scanlines(&state, &row, 1);
  }
  jpeg_finish_compress(&state);
  jpeg_destroy_compress(&state);
  std::string file(reinterpret_cast<const char*>(bytes), size);
  std::free(bytes);
  return file;
}

/// A PNG file of the libpng format `format`, PNG_FORMAT_RGB or another of bytes.
inline std::string png_of(const std::vector<uint8_t>& value_HWC, int64_t height, int64_t width,
                          uint32_t format) {
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.height = static_cast<png_uint_32>(height);
  image.width = static_cast<png_uint_32>(width);
  image.format = format;
  std::string bytes(PNG_IMAGE_PNG_SIZE_MAX(image), '\0');
  png_alloc_size_t size = bytes.size();
  png_image_write_to_memory(&image, bytes.data(), &size, 0, value_HWC.data(), 0, nullptr);
  bytes.resize(size);
  return bytes;
}

/// A PNG file of 16 bits a channel without gAMA, every pixel the same.
inline std::string sixteen_bit_png(const std::vector<uint16_t>& colour, int64_t height,
                                   int64_t width) {
  std::string bytes;
  png_structp writer = png_create_write_struct(PNG_LIBPNG_VER_STRING, nullptr, nullptr, nullptr);
  png_infop info = png_create_info_struct(writer);
  png_set_write_fn(
      writer, &bytes,
      [](png_structp png, png_bytep data, size_t size) {
        static_cast<std::string*>(png_get_io_ptr(png))
            ->append(reinterpret_cast<const char*>(data), size);
      },
      [](png_structp) {});
  png_set_IHDR(writer, info, static_cast<png_uint_32>(width), static_cast<png_uint_32>(height), 16,
               PNG_COLOR_TYPE_RGB, PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_DEFAULT,
               PNG_FILTER_TYPE_DEFAULT);
  png_write_info(writer, info);
  std::vector<png_byte> row;
  for (int64_t x = 0; x < width; ++x) {
    for (const uint16_t value : colour) {
      row.push_back(static_cast<png_byte>(value >> 8));
      row.push_back(static_cast<png_byte>(value & 255));
    }
  }
  for (int64_t y = 0; y < height; ++y) png_write_row(writer, row.data());
  png_write_end(writer, info);
  png_destroy_write_struct(&writer, &info);
  return bytes;
}

inline std::span<const std::byte> bytes_of(const std::string& file) {
  return std::as_bytes(std::span(file));
}

/// Every pixel the same.
inline std::vector<uint8_t> plain(const std::vector<uint8_t>& value, int64_t pixels) {
  std::vector<uint8_t> all;
  for (int64_t i = 0; i < pixels; ++i) all.insert(all.end(), value.begin(), value.end());
  return all;
}

}  // namespace shoal::testing
