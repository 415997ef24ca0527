// The texts of refused arguments.
#include "hccl/api/checks.h"

#include <string>

namespace hccl::api::refusals {

Status unknown_type(HcclDataType type, const char* argument) {
  return Status(Code::kNotSupport, std::string(argument) + " " +
                                       std::to_string(static_cast<int>(type)) + " is unknown");
}

Status unknown_op(HcclReduceOp op) {
  return Status(Code::kNotSupport, "op " + std::to_string(static_cast<int>(op)) + " is unknown");
}

Status irreducible(DataType type) {
  return Status(Code::kNotSupport, "dataType " + std::string(words(type)) + " cannot be reduced");
}

Status too_many(std::uint64_t count, const char* argument) {
  return Status(Code::kPara, std::string(argument) + " is " + std::to_string(count) +
                                 ", more than " + std::to_string(kMaxCount));
}

Status no_such_rank(std::uint32_t rank, int size, const char* argument) {
  return Status(Code::kPara, std::string(argument) + " is " + std::to_string(rank) +
                                 ", the communicator has " + std::to_string(size) + " ranks");
}

}  // namespace hccl::api::refusals
