// Operations of image transforms on images from outside, for comparisons with other programs.
//
// Reads, again and again: a line `OPERATION ARGUMENT INTERPOLATION HEIGHT WIDTH`, the argument as
// the 16 hexadecimal digits of a double's bits, and 3 x HEIGHT x WIDTH bytes. Writes as many bytes.

#include <algorithm>
#include <bit>
#include <cstdint>
#include <iostream>
#include <sstream>
#include <stdexcept>
#include <string>

#include "tests/support/pixel_operation_names.h"

namespace shoal {
namespace {

PixelOperation operation_called(const std::string& name) {
  const auto& known = kEnumWords<PixelOperation>;
  const auto found = std::ranges::find(known, name);
  if (found != known.end()) return static_cast<PixelOperation>(found - known.begin());
  throw std::runtime_error("no operation is called '" + name + "'");
}

Interpolation interpolation_called(const std::string& name) {
  if (name == "nearest") return Interpolation::kNearest;
  if (name == "bilinear") return Interpolation::kBilinear;
  if (name == "bicubic") return Interpolation::kBicubic;
  throw std::runtime_error("no interpolation is called '" + name + "'");
}

void answer(const std::string& question) {
  std::istringstream words(question);
  std::string operation, argument, interpolation;
  ImageShape shape;
  words >> operation >> argument >> interpolation >> shape.height >> shape.width;
  if (!words) throw std::runtime_error("cannot read '" + question + "'");
  EditedImage image{shape, std::vector<uint8_t>(static_cast<size_t>(shape.bytes()))};
  auto* bytes = reinterpret_cast<char*>(image.pixel_CHW.data());
  if (!std::cin.read(bytes, shape.bytes())) throw std::runtime_error("the image ends too early");
  apply(operation_called(operation), std::bit_cast<double>(std::stoull(argument, nullptr, 16)),
        interpolation_called(interpolation), image);
  std::cout.write(reinterpret_cast<const char*>(image.pixel_CHW.data()), shape.bytes());
  std::cout.flush();
}

}  // namespace
}  // namespace shoal

int main() {
  try {
    for (std::string question; std::getline(std::cin, question);) shoal::answer(question);
    return 0;
  } catch (const std::exception& error) {
    std::cerr << "image_operations: " << error.what() << '\n';
    return 1;
  }
}
