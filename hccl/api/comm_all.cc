// HcclCommInitAll: makes a communicator whose ranks are all in this process.
#include <algorithm>
#include <string>
#include <vector>

#include "hccl/acl/acl.h"
#include "hccl/api/guard.h"
#include "hccl/api/state.h"
#include "hccl/base/caught.h"
#include "hccl/base/thread.h"
#include "hccl/hccl_comm.h"

namespace {

using hccl::Code;
using hccl::Result;
using hccl::Status;
using hccl::api::CommunicatorPtr;
using hccl::api::State;

Status check_devices(uint32_t ndev, const int32_t* devices) {
  if (ndev == 0) return Status(Code::kPara, "ndev is 0");
  std::vector<int32_t> sorted(devices, devices + ndev);
  std::sort(sorted.begin(), sorted.end());
  const auto bad = [](int32_t device, const char* what) {
    return Status(Code::kPara, "devices has " + std::to_string(device) + what);
  };
  std::uint32_t known = 0;
  const int32_t count =
      aclrtGetDeviceCount(&known) == ACL_SUCCESS ? static_cast<int32_t>(known) : 0;
  if (sorted.front() < 0) return bad(sorted.front(), "");
  if (sorted.back() >= count) {
    return bad(sorted.back(), (", there are " + std::to_string(count) + " devices").c_str());
  }
  const auto twice = std::adjacent_find(sorted.begin(), sorted.end());
  return twice == sorted.end() ? Status() : bad(*twice, " twice");
}

// Joins all ranks, each on its own thread, and waits for all of them.
Result<std::vector<CommunicatorPtr>> join_all(int size) {
  State& state = State::get();
  HCCL_ASSIGN_OR_RETURN(const auto config, state.config());
  HCCL_ASSIGN_OR_RETURN(const auto info, state.worlds().make_root(config, true));
  const std::string name = info.address + "%" + info.name() + "_" + std::to_string(info.port);
  std::vector<Result<CommunicatorPtr>> made(static_cast<std::size_t>(size), CommunicatorPtr());
  {
    std::vector<hccl::Thread> threads;
    threads.reserve(made.size());
    for (int rank = 0; rank < size; ++rank) {
      threads.emplace_back("hccl-join", [&, rank] {
        made[static_cast<std::size_t>(rank)] = hccl::guarded([&] {
          return state.open(state.worlds().join(info, size, rank, config), config, name);
        });
      });
    }
  }
  std::vector<CommunicatorPtr> all;
  Status failure;
  for (std::size_t rank = 0; rank < made.size(); ++rank) {
    if (made[rank].ok()) {
      all.push_back(*made[rank]);
    } else if (failure.ok()) {
      failure = made[rank].status().with_context("rank " + std::to_string(rank));
    }
  }
  if (failure.ok()) return all;
  for (const auto& each : all) each->leave();
  return failure;
}

}  // namespace

extern "C" HcclResult HcclCommInitAll(uint32_t ndev, int32_t* devices, HcclComm* comms) {
  return hccl::api::guard("HcclCommInitAll", [&]() -> Status {
    HCCL_CHECK_PTR(devices);
    HCCL_CHECK_PTR(comms);
    HCCL_RETURN_IF_ERROR(check_devices(ndev, devices));
    HCCL_ASSIGN_OR_RETURN(const auto all, join_all(static_cast<int>(ndev)));
    auto& communicators = State::get().communicators();
    std::size_t made = 0;
    try {
      for (; made < all.size(); ++made) {
        hccl::api::Communicators::About about;
        about.device = devices[made];
        comms[made] = communicators.add(all[made], std::move(about));
      }
    } catch (...) {  // add() has made the rank that got no handle leave its world
      for (std::size_t i = 0; i < all.size(); ++i) {
        if (i < made) static_cast<void>(communicators.take(comms[i], hccl::api::idle));
        if (i < made) comms[i] = nullptr;
        if (i != made) all[i]->leave();
      }
      throw;
    }
    return {};
  });
}
