#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace shoal {

/// An image file and its class.
struct ImageEntry {
  std::string path;   ///< relative to the folder of all
  int64_t label = 0;  ///< 0 without classes
};

/// The ending of a name as images have it, in small letters: jpg, jpeg or png; "" for other names.
std::string image_ending(std::string_view name);

/// The images of a folder and its subfolders by their names (.jpg, .jpeg, .png, also in capitals),
/// a folder's own before those of its subfolders, each in order of name; names that begin with a
/// point are passed over. With `num_classes`, the folder's own subfolders are the classes, in order
/// of name.
/// Throws: DataError if the folder is missing or has no image, if it has another number of class
/// folders, for a class folder without an image, an image beside them, and for more than 16 folders
/// inside each other, as links make them that lead back.
std::vector<ImageEntry> images_of_folder(const std::string& folder,
                                         std::optional<int64_t> num_classes);

/// The names of a folder's subfolders, in order. Throws DataError where it cannot be listed.
std::vector<std::string> class_folders(const std::string& folder);

/// The images that a text file names, one a line, in its order: a path and, with `num_classes`, a
/// space and the label, 0 to num_classes - 1. Empty lines are passed over.
/// Throws: DataError with the line for a wrong label, a path that is absolute or leads out of the
/// folder, or an image named twice; for a missing file, and one that names nothing.
std::vector<ImageEntry> images_of_list(const std::string& list, std::optional<int64_t> num_classes);

}  // namespace shoal
