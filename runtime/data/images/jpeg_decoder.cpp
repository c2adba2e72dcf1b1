#include "runtime/data/images/image_decoders.h"

#include <csetjmp>
#include <cstdio>  // jpeglib.h needs size_t and FILE

#include <jpeglib.h>

#include <algorithm>
#include <array>

namespace shoal {
namespace {

constexpr long kMostDecoderBytes = 512L << 20;
constexpr int kMostScans = 100;
constexpr unsigned kMostScale = 8;

/// libjpeg's error handler with the place it jumps to. Jumps never cross a C++ destructor: between
/// setjmp and the calls that jump there are plain values only.
struct JpegErrors {
  jpeg_error_mgr manager;  // first: libjpeg hands out a pointer to it
  std::jmp_buf jump;
  std::array<char, JMSG_LENGTH_MAX> message;
};

JpegErrors& errors_of(j_common_ptr decoder) { return *reinterpret_cast<JpegErrors*>(decoder->err); }

[[noreturn]] void jump_out(j_common_ptr decoder) {
  JpegErrors& errors = errors_of(decoder);
  errors.manager.format_message(decoder, errors.message.data());
  std::longjmp(errors.jump, 1);
}

/// Warnings, of level -1, are about files that are cut or wrong: no image to train on.
void refuse_warning(j_common_ptr decoder, int level) {
  if (level < 0) jump_out(decoder);
}

/// A small file can hold thousands of scans over a large image.
void refuse_many_scans(j_common_ptr decoder) {
  const auto* decompress = reinterpret_cast<jpeg_decompress_struct*>(decoder);
  if (decompress->input_scan_number <= kMostScans) return;
  JpegErrors& errors = errors_of(decoder);
  std::snprintf(errors.message.data(), errors.message.size(), "it has more than %d scans",
                kMostScans);
  std::longjmp(errors.jump, 1);
}

/// One decoder, set up and torn down.
struct JpegDecoder {
  JpegDecoder() {
    state.err = jpeg_std_error(&errors.manager);
    errors.manager.error_exit = jump_out;
    errors.manager.emit_message = refuse_warning;
    progress.progress_monitor = refuse_many_scans;
  }
  ~JpegDecoder() { jpeg_destroy_decompress(&state); }
  JpegDecoder(const JpegDecoder&) = delete;
  JpegDecoder& operator=(const JpegDecoder&) = delete;

  jpeg_decompress_struct state{};
  JpegErrors errors{};
  jpeg_progress_mgr progress{};
};

/// What the file's height and width are divided by.
unsigned scale_of(const jpeg_decompress_struct& state, int64_t least_side) {
  const int64_t shorter = std::min(state.image_height, state.image_width);
  unsigned scale = kMostScale;
  while (scale > 1 && (shorter + scale - 1) / scale < least_side) scale /= 2;
  return scale;
}

/// Reads the header and chooses the output; false after an error.
bool read_header(JpegDecoder& decoder, std::span<const std::byte> file,
                 std::optional<int64_t> least_side) {
  if (setjmp(decoder.errors.jump) != 0) return false;
  jpeg_create_decompress(&decoder.state);
  decoder.state.mem->max_memory_to_use = kMostDecoderBytes;
  decoder.state.progress = &decoder.progress;
  jpeg_mem_src(&decoder.state, reinterpret_cast<const unsigned char*>(file.data()), file.size());
  jpeg_read_header(&decoder.state, TRUE);
  const bool has_inks =
      decoder.state.jpeg_color_space == JCS_CMYK || decoder.state.jpeg_color_space == JCS_YCCK;
  decoder.state.out_color_space = has_inks ? JCS_CMYK : JCS_RGB;
  decoder.state.dct_method = JDCT_ISLOW;
  if (least_side) decoder.state.scale_denom = scale_of(decoder.state, *least_side);
  jpeg_calc_output_dimensions(&decoder.state);
  return true;
}

/// Fills `rows` with all rows of the output, one after the other; false after an error.
bool read_rows(JpegDecoder& decoder, uint8_t* rows) {
  if (setjmp(decoder.errors.jump) != 0) return false;
  jpeg_start_decompress(&decoder.state);
  const size_t row_bytes =
      size_t{decoder.state.output_width} * static_cast<size_t>(decoder.state.output_components);
  while (decoder.state.output_scanline < decoder.state.output_height) {
    JSAMPROW row = rows + decoder.state.output_scanline * row_bytes;
    jpeg_read_scanlines(&decoder.state, &row, 1);
  }
  jpeg_finish_decompress(&decoder.state);
  return true;
}

/// What four inks leave of white light, in Pillow's rounding. Files hold 255 where there is no ink,
/// as Adobe's programs write them and as Pillow reads them all.
std::vector<uint8_t> without_inks(const std::vector<uint8_t>& inverted_ink) {
  std::vector<uint8_t> light;
  light.reserve(inverted_ink.size() / 4 * 3);
  for (size_t i = 0; i + 3 < inverted_ink.size(); i += 4) {
    const unsigned left_by_black = inverted_ink[i + 3];
    for (size_t channel = 0; channel < 3; ++channel) {
      const unsigned taken = (255U - inverted_ink[i + channel]) * left_by_black + 128;
      light.push_back(static_cast<uint8_t>(left_by_black - ((taken + (taken >> 8)) >> 8)));
    }
  }
  return light;
}

}  // namespace

InterleavedImage decode_jpeg(std::span<const std::byte> file, std::optional<int64_t> least_side) {
  JpegDecoder decoder;
  const auto failed = [&] {
    return InterleavedImage{.pixel_HWC = {}, .problem = decoder.errors.message.data()};
  };
  if (!read_header(decoder, file, least_side)) return failed();
  InterleavedImage image{
      .height = decoder.state.output_height,
      .width = decoder.state.output_width,
      .pixel_HWC = {},
      .problem = size_problem(decoder.state.image_height, decoder.state.image_width)};
  if (!image.problem.empty()) return image;
  const bool has_inks = decoder.state.out_color_space == JCS_CMYK;
  image.pixel_HWC.resize(static_cast<size_t>(image.height * image.width * (has_inks ? 4 : 3)));
  if (!read_rows(decoder, image.pixel_HWC.data())) return failed();
  if (has_inks) image.pixel_HWC = without_inks(image.pixel_HWC);
  return image;
}

}  // namespace shoal
