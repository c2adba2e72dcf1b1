#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "launch/runs/run_data.h"
#include "runtime/base/error.h"
#include "runtime/files/file_system.h"

namespace shoal {

/// One page of HTML on a run, or on several side by side: curves, heat maps, checkpoints, recipes
/// and environments, as far as the runs have them. It needs nothing beside it and has no scripts.
std::string run_report_page(const std::vector<RunData>& runs);

/// `report.html` in a run's folder.
std::string report_file(const std::string& run);

/// Reads the runs' folders (read_run) and puts the page at `file`, which is replaced. Throws
/// DataError for a folder that is no run, StorageError if the page cannot be written.
void write_run_report(const std::vector<std::string>& runs, const std::string& file,
                      FileSystem& files);

/// `shoal report RUN… [--out FILE.html]`.
struct ReportArguments {
  std::vector<std::string> runs;  ///< run folders; of several one page shows them side by side
  std::string out = {};           ///< empty: report.html in the folder of the one run
};

/// Writes a page on runs, finished or going on. Throws Error (exit 2) for several
/// runs without a file and for more than 8, DataError (exit 13) for a folder that is no run,
/// StorageError (exit 21) if the page cannot be written.
ExitCode report(const ReportArguments& arguments, std::ostream& out);

}  // namespace shoal
