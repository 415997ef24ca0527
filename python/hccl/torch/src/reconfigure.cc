// A group whose members change: torch's API for fault tolerance, since PyTorch 2.14.
#include "backend.h"

#ifdef C10D_BACKEND_HAS_RECONFIGURE
#include <algorithm>
#include <random>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <variant>

#include "exit.h"
#include "interpreter.h"

namespace hccl::pytorch {

// A handle only distinguishes members. Members join through the store, as at the start.
std::string ProcessGroupHccl::new_handle() {
  std::random_device random;
  std::string handle = "hccl";
  for (int i = 0; i < 4; ++i) handle += ":" + std::to_string(random());
  return handle;
}

WorkPtr ProcessGroupHccl::reconfigure(const c10d::ReconfigureOptions& options) {
  fork_.check();
  std::vector<std::string> handles;
  std::visit([&](const auto& each) { handles.assign(each.begin(), each.end()); }, options.handles);
  std::vector<std::string> sorted = handles;
  std::ranges::sort(sorted);
  if (options.handles.index() == 0) handles = sorted;  // the handles are a set without an order
  const auto mine = std::ranges::find(handles, handle_);
  TORCH_CHECK_VALUE(mine != handles.end(), "hccl reconfigure: the handles lack this rank's");
  TORCH_CHECK_VALUE(std::ranges::adjacent_find(sorted) == sorted.end(),
                    "hccl reconfigure: a handle is there twice");
  TORCH_CHECK_VALUE(configured_.insert(options.uuid).second, "hccl reconfigure: uuid ",
                    options.uuid, " is not new");

  const WithoutInterpreterLock lock;
  current()->end(std::chrono::milliseconds(0), std::chrono::milliseconds(0),
                 "the process group was reconfigured while operations ran");
  rank_ = static_cast<int>(mine - handles.begin());
  size_ = static_cast<int>(handles.size());
  c10d::PrefixStore store("reconfigure/" + std::to_string(options.uuid), store_);
  auto joined = std::make_shared<Communicator>(store, rank_, size_,
                                               options.timeout.value_or(options_->timeout), Part());
  end_before_python(joined);
  {
    const std::lock_guard changing(changing_);
    communicator_.swap(joined);
  }
  operations_ = 0;
  shrunk_ = false;
  c10d::BarrierOptions waits;
  waits.asyncOp = false;
  return issue({c10d::OpType::UNKNOWN, "hccl:reconfigure", {}, {}, waits}, [](HcclComm) {});
}

}  // namespace hccl::pytorch
#endif
