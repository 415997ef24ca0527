// hccl-plan: reads the traces of a training, and reports how its gradients are cut into segments,
// how they should be cut, and why.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>

#include "split/plan_tool/report.h"
#include "split/plan_tool/words.h"
#include "split/trace.h"

namespace hccl::split::plan_tool {
namespace {

constexpr double kGbit = 1e9 / 8;
constexpr std::uint32_t kMostRanks = 1u << 20;

struct Arguments {
  std::vector<std::string> traces;
  Options options;
  double slack_percent = 0.5;
  std::optional<double> start_us;
  std::optional<double> gbit;
  std::vector<std::string> links;
  std::string html;
  std::string json;
};

int fail(const std::string& why) {
  std::cerr << "hccl-plan: " << printable(why) << '\n';
  return 1;
}

/// Parses "10" or "10:400": the bandwidth in Gbit/s, and the start time in microseconds.
Result<Link> parse_link(const std::string& text, double usual_start) {
  const std::size_t colon = text.find(':');
  Link link{usual_start, 0};
  const auto read = [](const std::string& part, double* value) {
    std::size_t used = 0;
    try {
      *value = std::stod(part, &used);
    } catch (const std::exception&) {
      return false;
    }
    return used == part.size() && std::isfinite(*value) && *value >= 0;
  };
  double gbit = 0;
  double us = 0;
  const bool good = read(text.substr(0, colon), &gbit) && gbit > 0 &&
                    (colon == std::string::npos || read(text.substr(colon + 1), &us));
  if (!good)
    return Status(Code::kPara, "--link " + text +
                                   ": say Gbit/s, or Gbit/s:microseconds of a start, like 10:400");
  link.bytes_per_second = gbit * kGbit;
  if (colon != std::string::npos) link.start = us * 1e-6;
  return link;
}

bool same_file(const std::string& a, const std::string& b) {
  std::error_code none;
  const auto path = [&none](const std::string& file) {
    return std::filesystem::weakly_canonical(file, none);
  };
  return a == b || std::filesystem::equivalent(a, b, none) || path(a) == path(b);
}

/// Writes the whole file. Returns the reason if that fails, otherwise an empty text.
std::string write(const std::string& path, const std::string& content) {
  std::ofstream file(path, std::ios::binary);
  file << content;
  file.close();
  return file ? "" : "cannot write " + path;
}

Result<Report> make_report(const Arguments& arguments) {
  std::vector<Trace> traces;
  for (const std::string& path : arguments.traces) {
    HCCL_ASSIGN_OR_RETURN(Trace trace, read_trace(path));
    traces.push_back(std::move(trace));
  }
  Report report;
  Options options = arguments.options;
  HCCL_ASSIGN_OR_RETURN(report.analysis, analyse(traces, options));
  if (!arguments.links.empty()) {
    for (const std::string& text : arguments.links) {
      HCCL_ASSIGN_OR_RETURN(const Link link, parse_link(text, report.analysis.line.start));
      options.what_if_links.push_back(link);
    }
    HCCL_ASSIGN_OR_RETURN(report.analysis, analyse(traces, options));
  }
  HCCL_ASSIGN_OR_RETURN(report.advice, diagnose(report.analysis, options.slack));
  HCCL_ASSIGN_OR_RETURN(report.cuts, explain_cuts(report.analysis));
  report.files = arguments.traces;
  return report;
}

/// Returns the exit status, or nothing if the program should continue.
std::optional<int> parse(int argc, char** argv, Arguments& a) {
  CLI::App app{
      "Reads the traces that HcclFusionTraceWrite wrote of a training, and says where its "
      "gradients\n"
      "should be cut into segments, and why.\n"
      "  hccl-plan trace.*.pb                      the traces of all ranks, or one of them\n"
      "  hccl-plan trace.pb --html report.html     the same as a page with time lines",
      "hccl-plan"};
  app.add_option("trace", a.traces,
                 "Traces of HcclFusionTraceWrite, one for each rank, in any form but .csv")
      ->required()
      ->type_name("FILE");
  app.add_option("-k,--max-segments", a.options.max_segments, "Most segments of a plan")
      ->check(CLI::Range(1u, 1000u))
      ->capture_default_str();
  app.add_option("--slack", a.slack_percent,
                 "Take the plan with the fewest segments within this percentage of the best")
      ->check(CLI::Range(0.0, 100.0))
      ->capture_default_str();
  app.add_option("-r,--ranks", a.options.ranks, "Plan for this number of ranks, not the trace's")
      ->check(CLI::Range(2u, kMostRanks));
  app.add_option("--start", a.start_us, "Start time of each allreduce in microseconds")
      ->check(CLI::Range(0.0, 1e9));
  app.add_option("--bandwidth", a.gbit, "Gbit/s of the line of each rank")
      ->check(CLI::Range(1e-6, 1e9));
  app.add_option("--what-if-ranks", a.options.what_if_ranks, "More rows: other numbers of ranks")
      ->delimiter(',')
      ->check(CLI::Range(2u, kMostRanks));
  app.add_option("--link", a.links, "More rows: other lines, as Gbit/s or Gbit/s:microseconds")
      ->type_name("GBIT[:US]");
  app.add_option("--html", a.html, "Write a page with time lines")->type_name("FILE");
  app.add_option("--json", a.json, "Write the analysis as JSON")->type_name("FILE");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  std::vector<std::string> files = a.traces;
  for (const std::string& output : {a.html, a.json}) {
    if (output.empty()) continue;
    if (std::ranges::any_of(files, [&](const auto& file) { return same_file(file, output); })) {
      std::cerr << "hccl-plan: " << output << " is read, or written twice\n";
      return 2;
    }
    files.push_back(output);
  }
  a.options.slack = a.slack_percent / 100;
  if (a.start_us) a.options.start = *a.start_us * 1e-6;
  if (a.gbit) a.options.bytes_per_second = *a.gbit * kGbit;
  return std::nullopt;
}

int run(int argc, char** argv) {
  Arguments arguments;
  if (const auto status = parse(argc, argv, arguments)) return *status;
  const Result<Report> report = make_report(arguments);
  if (!report.ok()) return fail(report.status().message());
  std::cout << text(*report);
  for (const auto& [path, content] :
       {std::pair(arguments.html, arguments.html.empty() ? "" : page(*report)),
        std::pair(arguments.json, arguments.json.empty() ? "" : json(*report))}) {
    if (path.empty()) continue;
    if (const std::string why = write(path, content); !why.empty()) return fail(why);
  }
  std::cout.flush();
  return std::cout ? 0 : fail("cannot write to standard output");
}

}  // namespace
}  // namespace hccl::split::plan_tool

int main(int argc, char** argv) {
  try {
    return hccl::split::plan_tool::run(argc, argv);
  } catch (const std::exception& error) {
    std::cerr << "hccl-plan: " << error.what() << '\n';
    return 1;
  }
}
