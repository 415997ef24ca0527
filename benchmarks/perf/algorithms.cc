#include "benchmarks/perf/algorithms.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <numeric>

// The function is weak, so that the program can also time older libraries, which lack it.
// NOLINTNEXTLINE(readability-redundant-declaration): weak here
extern "C" HcclResult HcclCommDescribeAlgorithms(HcclComm comm, const char* op, uint64_t bytes,
                                                 bool deviceMemory, HcclAlgorithmInfo* infos,
                                                 size_t infoSize, uint32_t* infoNum)
    __attribute__((weak));

namespace hccl_perf {

void check(HcclResult result, const char* what) {
  if (result == HCCL_SUCCESS) return;
  std::fprintf(stderr, "hccl_perf: %s: %s: %s\n", what, HcclGetErrorString(result),
               HcclGetLastErrorText());
  std::_Exit(1);  // other ranks of this process may be inside the library
}

void check(aclError result, const char* what) {
  if (result == ACL_SUCCESS) return;
  std::fprintf(stderr, "hccl_perf: %s: %s\n", what, HcclGetLastErrorText());
  std::_Exit(1);
}

bool can_describe() { return HcclCommDescribeAlgorithms != nullptr; }

std::vector<HcclAlgorithmInfo> describe(HcclComm comm, std::string op, std::uint64_t bytes,
                                        bool shared, int rank) {
  std::erase(op, '_');  // names in HCCL_ALGO have no underscore
  std::uint32_t number = 0;
  std::vector<HcclAlgorithmInfo> infos;
  const auto ask = [&] {
    if (rank != 0) return;
    check(HcclCommDescribeAlgorithms(comm, op.c_str(), bytes, shared, infos.data(),
                                     sizeof(HcclAlgorithmInfo), &number),
          "HcclCommDescribeAlgorithms");
  };
  const auto share = [&](void* data, std::size_t size) {
    check(HcclBroadcast(data, size, HCCL_DATA_TYPE_INT8, 0, comm, nullptr),
          "sharing the list of algorithms");
  };
  ask();
  share(&number, sizeof number);
  infos.resize(number);
  ask();
  share(infos.data(), infos.size() * sizeof(HcclAlgorithmInfo));
  return infos;
}

std::string key(const HcclAlgorithmInfo& algorithm) {
  return "level" + std::to_string(algorithm.level) + ":" + algorithm.name;
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
