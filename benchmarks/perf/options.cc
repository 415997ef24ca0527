#include "benchmarks/perf/options.h"

#include <CLI/CLI.hpp>
#include <cctype>
#include <cstdlib>
#include <map>
#include <stdexcept>

namespace hccl_perf {
namespace {

const std::map<std::string, HcclDataType>& types() {
  static const std::map<std::string, HcclDataType> all{
      {"int8", HCCL_DATA_TYPE_INT8},     {"int16", HCCL_DATA_TYPE_INT16},
      {"int32", HCCL_DATA_TYPE_INT32},   {"int64", HCCL_DATA_TYPE_INT64},
      {"uint8", HCCL_DATA_TYPE_UINT8},   {"uint16", HCCL_DATA_TYPE_UINT16},
      {"uint32", HCCL_DATA_TYPE_UINT32}, {"uint64", HCCL_DATA_TYPE_UINT64},
      {"fp16", HCCL_DATA_TYPE_FP16},     {"bfp16", HCCL_DATA_TYPE_BFP16},
      {"fp32", HCCL_DATA_TYPE_FP32},     {"fp64", HCCL_DATA_TYPE_FP64}};
  return all;
}

const std::map<std::string, HcclReduceOp>& reduce_ops() {
  static const std::map<std::string, HcclReduceOp> all{{"sum", HCCL_REDUCE_SUM},
                                                       {"prod", HCCL_REDUCE_PROD},
                                                       {"max", HCCL_REDUCE_MAX},
                                                       {"min", HCCL_REDUCE_MIN}};
  return all;
}

template <class Map>
std::vector<std::string> names(const Map& map) {
  std::vector<std::string> out;
  for (const auto& [name, value] : map) out.push_back(name);
  return out;
}

/// Arguments that differ in form from the members of Options.
struct Raw {
  std::string low = "8";
  std::string high = "64M";
  const CLI::Option* root = nullptr;
  bool out_of_place = false;
  bool no_check = false;
};

/// Adds the options that choose operations.
void add_what(CLI::App& app, Options& o, Raw& raw) {
  app.add_option("--op", o.op, "The collective")
      ->check(CLI::IsMember({"allreduce", "broadcast", "reduce_scatter", "allgather", "reduce",
                             "scatter", "alltoall", "barrier", "sendrecv"}))
      ->capture_default_str();
  app.add_option("-b,--min", raw.low, "Smallest size in bytes (K, M, G)")->capture_default_str();
  app.add_option("-e,--max", raw.high, "Largest size")->capture_default_str();
  app.add_option("-f,--factor", o.factor, "Factor from one size to the next")
      ->check(CLI::Range(2, 1024))
      ->capture_default_str();
  app.add_option("-d,--type", o.type, "Element type")
      ->check(CLI::IsMember(names(types())))
      ->capture_default_str();
  app.add_option("-o,--reduce", o.reduce, "Reduce operation")
      ->check(CLI::IsMember(names(reduce_ops())))
      ->capture_default_str();
  raw.root = app.add_option(
      "-r,--root", o.root,
      "Root of broadcast, reduce and scatter (default: the next rank in each iteration)");
  app.add_option("-a,--algo", o.algo,
                 "Use this algorithm (level0:NAME inside a host, level1:NAME between hosts), or "
                 "algorithms in the full form of HCCL_ALGO (level0:NA;level1:NHR); all: time each "
                 "that is eligible, and mark the one that the library chooses");
}

/// Adds the options of the timing and of the outputs.
void add_how(CLI::App& app, Options& o, Raw& raw) {
  app.add_flag("--barrier", o.barrier, "Time each call alone, after a barrier");
  app.add_flag("--out-of-place,!--in-place", raw.out_of_place,
               "Send and receive buffers differ (default: in place)");
  app.add_option("-m,--memory", o.memory,
                 "Where buffers lie: private (ordinary memory), heap (aclrtMalloc), window "
                 "(aclrtMalloc, registered with all ranks)")
      ->check(CLI::IsMember({"private", "heap", "window"}))
      ->capture_default_str();
  app.add_flag("--cold", o.cold, "Empty the caches before each iteration (with --barrier)");
  app.add_option("-n,--iterations", o.iterations, "Timed iterations for each size")
      ->check(CLI::Range(1, 1000000))
      ->capture_default_str();
  app.add_option("-w,--warmup", o.warmup, "Iterations before the timed ones")
      ->check(CLI::Range(0, 1000000))
      ->capture_default_str();
  app.add_flag("--no-check", raw.no_check, "Do not compare results");
  app.add_option("-t,--threads", o.threads, "Ranks as threads of this process")
      ->check(CLI::Range(1, 256));
  app.add_option("--json", o.json, "Also write the table as JSON");
  app.add_option("--csv", o.csv, "Also write the table as CSV");
}

}  // namespace

std::uint64_t parse_size(const std::string& text) {
  std::size_t used = 0;
  std::uint64_t value = 0;
  try {
    value = std::stoull(text, &used);
  } catch (const std::exception&) {
    throw CLI::ValidationError("\"" + text + "\" is not a size");
  }
  std::string unit = text.substr(used);
  if (!unit.empty() && (unit.back() == 'B' || unit.back() == 'b')) unit.pop_back();
  int shift = 0;
  if (unit.size() == 1) {
    switch (std::toupper(static_cast<unsigned char>(unit[0]))) {
      case 'K':
        shift = 10;
        break;
      case 'M':
        shift = 20;
        break;
      case 'G':
        shift = 30;
        break;
      default:
        shift = -1;
    }
  }
  if (text[0] == '-' || unit.size() > 1 || shift < 0 || (value << shift) >> shift != value) {
    throw CLI::ValidationError("\"" + text + "\" is not a size: say 65536, 64K, 64M or 1G");
  }
  return value << shift;
}

Options parse(int argc, char** argv) {
  Options o;
  Raw raw;
  CLI::App app{
      "Times a collective over a range of sizes and checks its results.\n"
      "Timed is a loop in which each rank rewrites its buffer and calls the collective, without\n"
      "barriers, less the rewriting alone; --barrier times each call alone, after a barrier.\n"
      "Start it with mpirun (or torchrun, srun), or with --threads N in one process.\n"
      "  mpirun -np 4 hccl_perf --op allreduce -b 8 -e 64M\n"
      "  hccl_perf --threads 2 --op broadcast --json out.json"};
  add_what(app, o, raw);
  add_how(app, o, raw);
  try {
    app.parse(argc, argv);
    o.min_bytes = parse_size(raw.low);
    o.max_bytes = parse_size(raw.high);
    if (o.memory == "window" && o.op == "barrier") {
      throw CLI::ValidationError("a barrier has no buffer to register");
    }
    if (o.op == "sendrecv" && !o.algo.empty()) {
      throw CLI::ValidationError("--algo: sendrecv has no choice of algorithms");
    }
    if (!o.csv.empty() && o.csv == o.json) {
      throw CLI::ValidationError("--csv and --json name one file");
    }
    const std::uint64_t element = size_of(types().at(o.type));
    if (o.op != "barrier" && (o.min_bytes == 0 || o.min_bytes % element != 0)) {
      throw CLI::ValidationError("--min is no multiple of the " + std::to_string(element) +
                                 " bytes of an element");
    }
    if (o.min_bytes > o.max_bytes) throw CLI::ValidationError("--min is larger than --max");
  } catch (const CLI::ParseError& e) {
    std::exit(app.exit(e) == 0 ? 0 : 2);
  }
  o.fixed_root = raw.root->count() > 0;
  o.barrier = o.barrier || o.cold;
  o.in_place = !raw.out_of_place && o.op != "alltoall" && o.op != "sendrecv";
  o.check = !raw.no_check;
  o.data_type = types().at(o.type);
  o.reduce_op = reduce_ops().at(o.reduce);
  return o;
}

std::uint64_t size_of(HcclDataType type) {
  switch (type) {
    case HCCL_DATA_TYPE_INT8:
    case HCCL_DATA_TYPE_UINT8:
      return 1;
    case HCCL_DATA_TYPE_INT16:
    case HCCL_DATA_TYPE_UINT16:
    case HCCL_DATA_TYPE_FP16:
    case HCCL_DATA_TYPE_BFP16:
      return 2;
    case HCCL_DATA_TYPE_INT32:
    case HCCL_DATA_TYPE_UINT32:
    case HCCL_DATA_TYPE_FP32:
      return 4;
    default:
      return 8;
  }
}

}  // namespace hccl_perf
