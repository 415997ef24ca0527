// The ranks' data, and the right results: small whole numbers that every type holds exactly, also
// after a reduction over many ranks. Their period divides no block length, so that a block in the
// wrong place is found.
#ifndef HCCL_CLIENT_DATA_H_
#define HCCL_CLIENT_DATA_H_

#include <hccl/hccl_types.h>

#include <cstdint>
#include <string>
#include <vector>

const std::vector<HcclDataType>& all_types();
const char* name_of(HcclDataType type);
const char* name_of(HcclReduceOp reduction);
bool type_by_name(const std::string& name, HcclDataType* type);
/// Bytes of an element.
uint64_t size_of(HcclDataType type);
/// Returns whether the type can be reduced, and not only moved.
bool can_be_reduced(HcclDataType type);

/// Fills and checks buffers. Element i of a buffer depends on i modulo the period.
class Data {
 public:
  /// The data that a rank sends if the operation only moves data.
  static Data moved(HcclDataType type, uint32_t rank);
  /// The data that a rank sends to a reduction; reduced(): the result of the reduction by `ranks`
  /// ranks.
  static Data to_reduce(HcclDataType type, HcclReduceOp reduction, uint32_t rank);
  static Data reduced(HcclDataType type, HcclReduceOp reduction, uint32_t ranks);

  /// Writes elements [first, first + count) to memory.
  void write(void* memory, uint64_t first, uint64_t count) const;
  /// Returns whether memory holds these elements, bit for bit; if not, *wrong is the index of the
  /// first wrong element.
  bool matches(const void* memory, uint64_t first, uint64_t count, uint64_t* wrong) const;

 private:
  Data(HcclDataType type, const std::vector<int>& values);

  uint64_t element_;
  uint64_t period_;
  std::vector<unsigned char> twice_;  // two periods, so that a period from any start is contiguous
};

#endif  // HCCL_CLIENT_DATA_H_
