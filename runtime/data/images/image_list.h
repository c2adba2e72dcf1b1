#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/data/class_options.h"

namespace shoal {

/// An image file and its class.
struct ImageEntry {
  std::string path;   ///< relative to the folder of all images
  int64_t label = 0;  ///< 0 without classes
};

/// The ending of an image's file name in lower case: jpg, jpeg or png; "" for other names.
std::string image_ending(std::string_view name);

/// The images of a folder and its subfolders (.jpg, .jpeg, .png, also in capitals), a folder's own
/// before those of its subfolders, each in order of name; names that begin with a point are
/// skipped. Unless `classes` are none, the folder's own subfolders are the classes, labelled by
/// class_names or, without names, in order of name. Throws: DataError if the folder is missing or
/// has no image; for class folders of other names or, without names, another number; for a class
/// folder without an image, or an image beside them; and for more than 16 nested folders, such as a
/// link to a parent folder makes.
std::vector<ImageEntry> images_of_folder(const std::string& folder, const ClassOptions& classes);

/// The names of a folder's subfolders, in order. Throws DataError if it cannot be listed.
std::vector<std::string> class_folders(const std::string& folder);

/// The images listed in a text file, one a line: a path and, unless `num_classes` is 0, a space and
/// the label, 0 to num_classes - 1. Empty lines are skipped. Throws: DataError with the line for a
/// wrong label, a path that is absolute or leads out of the folder, or a repeated image; also for a
/// missing file and an empty list.
std::vector<ImageEntry> images_of_list(const std::string& list, int64_t num_classes);

}  // namespace shoal
