#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "launch/pages/page.h"
#include "launch/runs/run_data.h"
#include "runtime/base/error.h"
#include "runtime/files/file_system.h"

namespace shoal {

/// Page on one run, or on several for comparison: curves, heat maps, checkpoints, recipes and
/// environments, as far as the runs have them.
Page report_page(const std::vector<RunData>& runs);

/// Path of `report.html` in a run folder.
std::string report_file(const std::string& run);

/// Reads run folders (read_run) and writes their page to `file`, replacing it. Throws DataError for
/// a folder that is not a run's, StorageError if the page cannot be written.
void write_run_report(const std::vector<std::string>& runs, const std::string& file,
                      FileSystem& files);

/// `shoal report RUN… [--out FILE.html]`.
struct ReportArguments {
  std::vector<std::string> runs;  ///< run folders, or folders of runs; several are compared
  std::string out = {};  ///< default: report.html of a single run, else comparison.html beside them
  bool json = false;     ///< prints Page::json in place of the page
};

/// Writes a page on finished or running runs and prints its path. Throws Error (exit 2), with a
/// suggestion, for a folder that does not exist, DataError (exit 13) for one that neither is a
/// run's nor holds runs, StorageError (exit 21) if the page cannot be written.
ExitCode report(const ReportArguments& arguments, std::ostream& out);

}  // namespace shoal
