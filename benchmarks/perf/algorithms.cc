#include "benchmarks/perf/algorithms.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <sstream>

// Libraries before this call existed can be timed, too.
// NOLINTNEXTLINE(readability-redundant-declaration): weak here
extern "C" HcclResult HcclCommDescribeAlgorithms(HcclComm comm, const char* op, uint64_t bytes,
                                                 char* text, uint32_t length) __attribute__((weak));

namespace hccl_perf {

void check(HcclResult result, const char* what) {
  if (result == HCCL_SUCCESS) return;
  std::fprintf(stderr, "hccl_perf: %s: %s: %s\n", what, HcclGetErrorString(result),
               HcclGetLastErrorText());
  std::_Exit(1);  // other ranks of this process may be inside the library
}

namespace {

// Of the local algorithms, which have a line for each kind of memory, those for this one.
std::vector<Algorithm> parse_algorithms(const std::string& text, const std::string& memory) {
  std::vector<Algorithm> found;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    Algorithm one;
    std::string word;
    if (!(words >> one.level >> one.name >> word)) continue;
    one.eligible = word == "eligible";
    if (one.level == "level0" && (!(words >> word) || word != memory)) continue;
    if (one.eligible) {
      one.chosen = static_cast<bool>(words >> word) && word == "chosen";
    } else {
      std::getline(words >> std::ws, one.reason);
    }
    found.push_back(one);
  }
  return found;
}

}  // namespace

bool can_describe() { return HcclCommDescribeAlgorithms != nullptr; }

std::vector<Algorithm> describe(HcclComm comm, std::string op, std::uint64_t bytes, bool shared,
                                int rank) {
  std::erase(op, '_');  // as HCCL_ALGO has its words
  std::vector<char> text(16 << 10);
  if (rank == 0) {
    check(HcclCommDescribeAlgorithms(comm, op.c_str(), bytes, text.data(),
                                     static_cast<std::uint32_t>(text.size())),
          "HcclCommDescribeAlgorithms");
  }
  check(HcclBroadcast(text.data(), text.size(), HCCL_DATA_TYPE_INT8, 0, comm, nullptr),
        "telling the algorithms");
  return parse_algorithms(text.data(), shared ? "shared" : "private");
}

HcclComm with_algorithm(HcclComm world, const std::string& key, std::uint64_t id, int rank,
                        int ranks) {
  HcclCommConfig config;
  HcclCommConfigInit(&config);
  std::snprintf(config.hcclAlgo, sizeof config.hcclAlgo, "%s", key.c_str());
  std::vector<std::uint32_t> members(static_cast<std::size_t>(ranks));
  std::iota(members.begin(), members.end(), 0U);
  HcclComm comm = nullptr;
  check(HcclCreateSubCommConfig(&world, static_cast<std::uint32_t>(ranks), members.data(), id,
                                static_cast<std::uint32_t>(rank), &config, &comm),
        ("a communicator with " + key).c_str());
  return comm;
}

}  // namespace hccl_perf
