// The options of hccl_perf.
#pragma once

#include <cstdint>
#include <string>

#include "hccl/hccl.h"

namespace hccl_perf {

struct Options {
  std::string op = "allreduce";
  std::uint64_t min_bytes = 8;
  std::uint64_t max_bytes = 64ull << 20;
  std::uint64_t factor = 4;
  std::string type = "fp32";
  std::string reduce = "sum";
  std::uint32_t root = 0;
  bool fixed_root = false;  ///< if false, the root changes with each iteration
  std::string algo;         ///< "": the library's choice; all; NAME; level0:NAME
  bool barrier = false;     ///< each operation is timed alone, after a barrier
  bool in_place = true;
  std::string memory = "private";  ///< where buffers lie: private, heap (aclrtMalloc) or window
  bool cold = false;               ///< caches are emptied before each iteration
  int iterations = 50;
  int warmup = 10;
  bool check = true;
  int threads = 0;  ///< 0: this process is one rank, started by a launcher
  std::string json;
  std::string csv;

  HcclDataType data_type = HCCL_DATA_TYPE_FP32;
  HcclReduceOp reduce_op = HCCL_REDUCE_SUM;
};

/// Returns the bytes of "64M" and the like; K, M and G are powers of 1024.
std::uint64_t parse_size(const std::string& text);

/// Exits with a message on bad arguments or --help.
Options parse(int argc, char** argv);

std::uint64_t size_of(HcclDataType type);

}  // namespace hccl_perf
