// The command line.
#ifndef HCCL_CLIENT_OPTIONS_H_
#define HCCL_CLIENT_OPTIONS_H_

#include <hccl/hccl_types.h>

#include <cstdint>
#include <string>
#include <vector>

struct Options {
  std::vector<std::string> operators;  // empty: all
  std::vector<HcclDataType> types;
  std::vector<HcclReduceOp> reductions;
  uint64_t begin = 64 << 20;  // bytes
  uint64_t end = 64 << 20;
  uint64_t step = 0;    // bytes to add; 0: multiply with factor
  uint64_t factor = 2;  // at least 2
  uint64_t iterations = 20;
  uint64_t warmup = 10;
  uint64_t root = 0;
  uint64_t devices = 0;  // of this host; 0: as many as there are
  bool check = true;
  bool zero_copy = false;
  bool symmetric = false;
  bool gate = false;    // the stream waits for an event that comes when all is queued
  bool config = false;  // join with a configuration
  std::string profile;  // a directory; empty: no profile
};

/// Returns false after -h, and after a bad option, which it prints on standard error.
bool parse_options(int argc, char** argv, Options* options);

#endif  // HCCL_CLIENT_OPTIONS_H_
