#include "compare.h"

#include <mutex>
#include <set>
#include <utility>

#include "hccl/hccl.h"

namespace hccl::tf {

using ::tensorflow::errors::InvalidArgument;

namespace {

/// Returns the numbers that ranks compare: for each tensor the number of elements and a digest of
/// the shape, and at the end the form.
std::vector<std::int64_t> compared_of(Form form, const std::vector<TensorShape>& shapes) {
  std::vector<std::int64_t> numbers;
  for (const TensorShape& shape : shapes) {
    numbers.push_back(shape.num_elements());
    numbers.push_back(static_cast<std::int64_t>(mixed(0, shape)));
  }
  numbers.push_back(static_cast<std::int64_t>(form));
  return numbers;
}

}  // namespace

Status compare(HcclComm comm, Form form, const std::vector<TensorShape>& shapes,
               const std::string& what, const std::vector<std::string>& names) {
  std::uint32_t ranks = 0;
  TF_RETURN_IF_ERROR(to_status(HcclGetRankSize(comm, &ranks)));
  std::vector<std::int64_t> own = compared_of(form, shapes);
  std::vector<std::int64_t> all(own.size() * ranks);
  TF_RETURN_IF_ERROR(to_status(
      HcclAllGather(own.data(), all.data(), own.size(), HCCL_DATA_TYPE_INT64, comm, nullptr)));
  for (std::size_t i = 0; i < own.size(); ++i) {
    for (std::uint32_t rank = 1; rank < ranks; ++rank) {
      const std::int64_t there = all[rank * own.size() + i];
      if (there == all[i]) continue;
      if (i == 2 * shapes.size()) {
        return InvalidArgument("hccl: ", what, ": ranks 0 and ", rank,
                               " fuse the gradients by different rules: HCCL_SPLIT and the split "
                               "strategy must be the same on all ranks");
      }
      const std::size_t tensor = i / 2;
      const std::string name =
          tensor < names.size() ? names[tensor] : "tensor " + std::to_string(tensor);
      if (i % 2 != 0) {
        return InvalidArgument("hccl: ", what, ": ", name, " has different shapes on ranks 0 and ",
                               rank, "; on this rank it is ", shapes[tensor].DebugString());
      }
      return InvalidArgument("hccl: ", what, ": ", name, " has ", all[i], " elements on rank 0, ",
                             there, " on rank ", rank);
    }
  }
  return absl::OkStatus();
}

Status compare_once(HcclComm comm, Form form, const std::vector<TensorShape>& shapes,
                    const std::string& what, const std::vector<std::string>& names) {
  // The library never uses a handle twice, so handles of ended worlds can stay here.
  static std::mutex& mutex = *new std::mutex;
  static auto& compared = *new std::set<std::pair<HcclComm, std::vector<std::int64_t>>>;
  const std::pair list(comm, compared_of(form, shapes));
  {
    const std::lock_guard lock(mutex);
    if (compared.count(list) != 0) return absl::OkStatus();
  }
  TF_RETURN_IF_ERROR(compare(comm, form, shapes, what, names));
  const std::lock_guard lock(mutex);
  compared.insert(list);
  return absl::OkStatus();
}

}  // namespace hccl::tf
