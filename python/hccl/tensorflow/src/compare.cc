#include "compare.h"

#include <mutex>
#include <set>
#include <tuple>

#include "hccl/hccl.h"

namespace hccl::tf {

using ::tensorflow::errors::InvalidArgument;

Status compare(HcclComm comm, Form form, const std::vector<std::int64_t>& sizes,
               const std::string& what, const std::vector<std::string>& names) {
  std::uint32_t ranks = 0;
  TF_RETURN_IF_ERROR(to_status(HcclGetRankSize(comm, &ranks)));
  std::vector<std::int64_t> own = sizes;
  own.push_back(static_cast<std::int64_t>(form));
  std::vector<std::int64_t> all(own.size() * ranks);
  TF_RETURN_IF_ERROR(to_status(
      HcclAllGather(own.data(), all.data(), own.size(), HCCL_DATA_TYPE_INT64, comm, nullptr)));
  for (std::size_t i = 0; i < own.size(); ++i) {
    for (std::uint32_t rank = 1; rank < ranks; ++rank) {
      const std::int64_t there = all[rank * own.size() + i];
      if (there == all[i]) continue;
      if (i == sizes.size()) {
        return InvalidArgument("hccl: ", what, ": ranks 0 and ", rank,
                               " fuse the gradients by different rules: HCCL_SPLIT and the split "
                               "strategy must be the same on all ranks");
      }
      const std::string name = i < names.size() ? names[i] : "tensor " + std::to_string(i);
      return InvalidArgument("hccl: ", what, ": ", name, " has ", all[i], " elements on rank 0, ",
                             there, " on rank ", rank);
    }
  }
  return absl::OkStatus();
}

Status compare_once(HcclComm comm, Form form, const std::vector<std::int64_t>& sizes,
                    const std::string& what, const std::vector<std::string>& names) {
  // The library never uses a handle twice, so handles of ended worlds can stay here.
  static std::mutex& mutex = *new std::mutex;
  static auto& compared = *new std::set<std::tuple<HcclComm, Form, std::vector<std::int64_t>>>;
  const std::tuple list(comm, form, sizes);
  {
    const std::lock_guard lock(mutex);
    if (compared.count(list) != 0) return absl::OkStatus();
  }
  TF_RETURN_IF_ERROR(compare(comm, form, sizes, what, names));
  const std::lock_guard lock(mutex);
  compared.insert(list);
  return absl::OkStatus();
}

}  // namespace hccl::tf
