// The eleven collectives: the sizes of their buffers, their calls, and the right results.
#ifndef HCCL_CLIENT_OPERATORS_H_
#define HCCL_CLIENT_OPERATORS_H_

#include <hccl/hccl.h>

#include <cstdint>
#include <string>
#include <vector>

struct Setting {
  uint32_t rank;
  uint32_t ranks;
  uint32_t root;
  uint64_t count;  // approximate number of elements of the larger buffer
  HcclDataType type;
  HcclReduceOp reduction;
};

/// Elements that the receive buffer must have from `at` on.
struct Part {
  static const uint32_t kReduced = 0xFFFFFFFF;

  uint64_t at;
  uint64_t count;
  uint32_t from;    // the rank that sent them, or kReduced: sum of all ranks
  uint64_t offset;  // their position in the send buffer
};

/// One operator in one setting. Counts are elements.
struct TestCase {
  uint64_t send_count = 0;
  uint64_t recv_count = 0;
  bool in_place = false;  // only the receive buffer is used; the root sends from it
  std::vector<Part> expected;
  // Only for the operators V and VC.
  std::vector<uint64_t> send_counts, send_displacements, recv_counts, recv_displacements;
};

/// The arguments of an operator's call.
struct Run {
  const Setting& s;
  const TestCase& p;
  void* send;
  void* recv;
  HcclComm comm;
  aclrtStream stream;
};

struct Operator {
  const char* name;
  bool reduces;
  void (*plan)(const Setting& setting, TestCase* test_case);
  HcclResult (*call)(const Run& run);
};

const std::vector<Operator>& all_operators();
/// Returns null if there is none.
const Operator* find_operator(const std::string& name);

#endif  // HCCL_CLIENT_OPERATORS_H_
