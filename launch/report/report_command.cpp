#include <fmt/format.h>

#include "launch/commands/commands.h"
#include "launch/report/curve_figure.h"
#include "launch/report/run_report.h"

namespace shoal {

ExitCode report(const ReportArguments& arguments, std::ostream& out) {
  if (arguments.runs.size() > kNumCurveColours) {
    throw Error(ExitCode::kUsage,
                fmt::format("report: {} runs, but there are colours for {} in one picture",
                            arguments.runs.size(), kNumCurveColours),
                "write several pages");
  }
  std::string file = arguments.out;
  if (file.empty()) {
    if (arguments.runs.size() > 1) {
      throw Error(ExitCode::kUsage, "report: several runs share a page, which belongs to none",
                  "name it with --out FILE.html");
    }
    file = report_file(arguments.runs.front());
  }
  PosixFileSystem files;
  write_run_report(arguments.runs, file, files);
  out << file << "\n";
  return ExitCode::kOk;
}

}  // namespace shoal
