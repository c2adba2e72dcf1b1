#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "launch/pages/picture.h"
#include "runtime/files/file_system.h"

namespace shoal {

/// Escapes `text` for HTML and XML, and replaces control characters by blanks.
std::string xml_text(std::string text);

/// Rows of cells.
using TableRows = std::vector<std::vector<std::string>>;

/// A table for text or a page; the first of `rows` is its head.
struct CaptionedTable {
  std::string caption;
  TableRows rows;
};

/// A page of the report or of `shoal inspect`: data in sections of blocks, and the HTML document
/// that shows them without a network. Scripts draw the figures; all else is markup.
class Page {
 public:
  using Json = nlohmann::ordered_json;

  explicit Page(std::string title) : title_(std::move(title)) {}

  /// Begins a section; one without blocks is left out. `heading` may be empty.
  void begin_section(const std::string& id, const std::string& heading);

  /// Adds a block to the section, an object with one of these keys. All texts are plain.
  /// - "paragraph", "heading": a string
  /// - "list": strings
  /// - "facts": pairs of name and value
  /// - "table": {"caption", "rows", "folded"}. The first row is the head; a cell is a string or
  ///   {"text", "colour"}; a folded table is opened by a click.
  /// - "pictures": list of {"images", "caption"}; an image has "src", "alt", and optionally
  ///   "width". With "heads", titles of equal parts of the image stand above it, "gap" % apart
  /// - "curves", "heat", "tokens": a figure as page.js or maps.js draws it, with its "title"; the
  ///   "table" beside it has its numbers
  void add(Json block);
  void add_table(const CaptionedTable& table, bool is_folded = false);

  /// Adds what a figure's `run` refers to, in order: "name", "marks" (steps of resumes), and the
  /// lists "step", "samples", "hours", "tokens", which give other units of the horizontal axis.
  void add_run(Json run) { runs_.push_back(std::move(run)); }
  /// Index of a list of steps, by which figures share it.
  size_t steps_index(const std::vector<double>& steps);

  /// The data: "title", "runs", "steps", "sections".
  Json json() const;
  std::string html() const;

 private:
  std::string title_;
  Json runs_ = Json::array(), sections_ = Json::array();
  std::map<std::vector<double>, size_t> steps_;
};

/// Encodes the picture as PNG in a `data:` URL.
std::string png_address(const Picture& picture);
/// An embedded PNG from the bytes of a PNG file.
std::string png_address(std::string_view png);

/// Writes a PNG into a page's folder, magnified if small, and returns it as an image of a block.
/// Throws StorageError.
Page::Json page_image(FileSystem& files, const std::string& folder, const std::string& name,
                      const Picture& picture);

}  // namespace shoal
