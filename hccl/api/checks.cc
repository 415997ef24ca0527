// The texts of refused arguments.
#include "hccl/api/checks.h"

#include <cmath>
#include <string>

namespace hccl::api::refusals {

Status unknown_type(HcclDataType type, const char* argument) {
  return Status(Code::kNotSupport, std::string(argument) + " " +
                                       std::to_string(static_cast<int>(type)) + " is unknown");
}

Status unknown_op(HcclReduceOp op) {
  return Status(Code::kNotSupport, "op " + std::to_string(static_cast<int>(op)) + " is unknown");
}

Status irreducible(DataType type, ReduceOp op) {
  std::string text = "dataType " + std::string(to_string(type)) + " cannot be reduced";
  if (kernels::reducible(type)) {
    text += " by " + std::string(to_string(op)) + ": this reduction is for integers";
  }
  return Status(Code::kNotSupport, std::move(text));
}

Status too_many(std::uint64_t count, std::uint64_t most, const char* argument) {
  return Status(Code::kPara, std::string(argument) + " is " + std::to_string(count) +
                                 ", more than " + std::to_string(most));
}

Status wrong_length(std::size_t most, const char* argument) {
  return Status(Code::kPara,
                std::string(argument) + " must have 1 to " + std::to_string(most) + " bytes");
}

Status no_such_rank(std::uint32_t rank, int size, const char* argument) {
  return Status(Code::kPara, std::string(argument) + " is " + std::to_string(rank) +
                                 ", the communicator has " + std::to_string(size) + " ranks");
}

}  // namespace hccl::api::refusals

namespace hccl::api {

Result<Scale> check_scale(const HcclScale* scale, ReduceOp op, DataType type) {
  if (scale == nullptr) return Scale{};
  const Scale factors{scale->before, scale->after};
  if (!std::isfinite(factors.before) || !std::isfinite(factors.after)) {
    return Status(Code::kPara, "scale: a factor is not finite");
  }
  if (factors == Scale{}) return factors;
  if (op != ReduceOp::kSum && op != ReduceOp::kAvg) {
    return Status(Code::kNotSupport, "scale: only sums and averages have factors, op is " +
                                         std::string(to_string(op)));
  }
  if (!floating(type)) {
    return Status(Code::kNotSupport,
                  "scale: only floats have factors, dataType is " + std::string(to_string(type)));
  }
  return factors;
}

}  // namespace hccl::api
