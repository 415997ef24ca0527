#include "benchmarks/perf/report.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

namespace hccl_perf {
namespace {

bool write(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::trunc);
  file << text;
  file.close();
  if (file) return true;
  std::fprintf(stderr, "hccl_perf: cannot write %s: %s\n", path.c_str(), std::strerror(errno));
  return false;
}

std::string wrong_text(std::int64_t wrong) { return wrong < 0 ? "-" : std::to_string(wrong); }

}  // namespace

void print_header(const Options& o, int ranks) {
  std::printf("# hccl_perf: %s, %d ranks%s, %s%s%s, %s, %s memory%s, %d iterations after %d, %s\n",
              o.op.c_str(), ranks, o.threads > 0 ? " (threads)" : "", o.type.c_str(),
              o.op.find("reduce") == std::string::npos ? "" : " ",
              o.op.find("reduce") == std::string::npos ? "" : o.reduce.c_str(),
              o.in_place ? "in place" : "out of place", o.memory.c_str(), o.cold ? ", cold" : "",
              o.iterations, o.warmup, o.check ? "results checked" : "results not checked");
  std::printf(
      "# time: %s; algbw = bytes / p50; cpu: processor seconds a "
      "second "
      "of a rank\n# in the operation, the mean of all ranks; wait: the rest, in which it sleeps or "
      "another has its core\n",
      o.barrier ? "each call alone after a barrier, slowest rank of each iteration"
                : "loop of rewriting and call, less the rewriting, slowest rank");
  std::printf("%14s %14s %12s %12s %12s %10s %10s %6s %6s %8s%s\n", "bytes", "count", "p50(us)",
              "p99(us)", "min(us)", "algbw", "busbw", "cpu", "wait", "#wrong",
              o.algo.empty() ? "" : "  algorithm");
}

void print_refused(std::uint64_t bytes, const std::string& algorithm, const std::string& reason) {
  std::printf("# %llu bytes: %s is not eligible: %s\n", static_cast<unsigned long long>(bytes),
              algorithm.c_str(), reason.c_str());
}

void print_row(const Row& row) {
  std::printf("%14llu %14llu %12.2f %12.2f %12.2f %10.3f %10.3f %6.3f %6.3f %8s%s%s%s\n",
              static_cast<unsigned long long>(row.bytes),
              static_cast<unsigned long long>(row.count), row.p50_us, row.p99_us, row.min_us,
              row.algbw, row.busbw, row.cpu, row.wait, wrong_text(row.wrong).c_str(),
              row.algorithm.empty() ? "" : "  ", row.algorithm.c_str(),
              row.chosen ? "  <- chosen" : "");
  std::fflush(stdout);
}

bool write_files(const Options& o, int ranks, const std::vector<Row>& rows) {
  bool written = true;
  if (!o.json.empty()) {
    nlohmann::json table = nlohmann::json::array();
    for (const Row& row : rows) {
      table.push_back({{"bytes", row.bytes},
                       {"count", row.count},
                       {"p50_us", row.p50_us},
                       {"p99_us", row.p99_us},
                       {"min_us", row.min_us},
                       {"algbw_GBps", row.algbw},
                       {"busbw_GBps", row.busbw},
                       {"cpu", row.cpu},
                       {"wait", row.wait},
                       {"wrong", row.wrong},
                       {"algorithm", row.algorithm},
                       {"chosen", row.chosen}});
    }
    const nlohmann::json document = {
        {"op", o.op},           {"ranks", ranks},     {"threads", o.threads > 0},
        {"type", o.type},       {"reduce", o.reduce}, {"in_place", o.in_place},
        {"memory", o.memory},   {"cold", o.cold},     {"iterations", o.iterations},
        {"barrier", o.barrier}, {"rows", table}};
    written = write(o.json, document.dump(1) + "\n");
  }
  if (!o.csv.empty()) {
    std::string text =
        "op,ranks,type,reduce,in_place,memory,cold,bytes,count,p50_us,p99_us,min_us,algbw_GBps,"
        "busbw_GBps,cpu,wait,wrong,algorithm,chosen\n";
    for (const Row& row : rows) {
      char line[512];
      std::snprintf(
          line, sizeof line,
          "%s,%d,%s,%s,%d,%s,%d,%llu,%llu,%.3f,%.3f,%.3f,%.4f,%.4f,%.4f,%.4f,%lld,%s,%d\n",
          o.op.c_str(), ranks, o.type.c_str(), o.reduce.c_str(), o.in_place ? 1 : 0,
          o.memory.c_str(), o.cold ? 1 : 0, static_cast<unsigned long long>(row.bytes),
          static_cast<unsigned long long>(row.count), row.p50_us, row.p99_us, row.min_us, row.algbw,
          row.busbw, row.cpu, row.wait, static_cast<long long>(row.wrong), row.algorithm.c_str(),
          row.chosen ? 1 : 0);
      text += line;
    }
    written = write(o.csv, text) && written;
  }
  return written;
}

}  // namespace hccl_perf
