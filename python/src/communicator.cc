#include "communicator.h"

#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <utility>

#include "gil.h"
#include "hccl/hccl_framework.h"
#include "hccl/hcom.h"

namespace hccl::python {
namespace {

[[noreturn]] void refuse(const std::string& text) { throw nb::value_error(text.c_str()); }

// Returns the communicator that `make` makes. `comm` is shared, because `make` may continue after
// Ctrl-C ended the wait.
template <typename Make>
Communicator* made(Make make) {
  const auto comm = std::make_shared<HcclComm>();
  BlockingCalls().run([=]() mutable { return make(comm.get()); });
  return new Communicator(*comm, Communicator::Lifetime::kHandle);
}

}  // namespace

// ---- joining and leaving ----

Communicator* Communicator::from_root_info(const nb::bytes& info, std::uint32_t size,
                                           std::uint32_t rank) {
  if (info.size() != HCCL_ROOT_INFO_BYTES) {
    refuse("info: has " + std::to_string(info.size()) + " bytes, a root info has " +
           std::to_string(HCCL_ROOT_INFO_BYTES));
  }
  const auto root = std::make_shared<HcclRootInfo>();
  std::memcpy(root->internal, info.data(), HCCL_ROOT_INFO_BYTES);
  return made([=](HcclComm* comm) { return HcclCommInitRootInfo(size, root.get(), rank, comm); });
}

Communicator* Communicator::from_rank_table(const std::string& path, std::uint32_t rank) {
  return made([=](HcclComm* comm) { return HcclCommInitClusterInfo(path.c_str(), rank, comm); });
}

Communicator* Communicator::world(LibraryCall join) {
  BlockingCalls().run(std::move(join));
  HcclComm comm = nullptr;
  check(HcomGetCommHandleByGroup(HCCL_WORLD_GROUP, &comm));
  return new Communicator(comm, Lifetime::kWorld);
}

Communicator* Communicator::join_by_launcher() {
  return world([] { return HcomInitByLauncher(); });
}

Communicator* Communicator::join_by_rank_table(const std::string& path, std::uint32_t rank) {
  return world([=] { return HcomInitByFile(path.c_str(), std::to_string(rank).c_str()); });
}

Communicator* Communicator::from_group(const std::string& group) {
  HcclComm comm = nullptr;
  check(HcomGetCommHandleByGroup(group.c_str(), &comm));
  return new Communicator(comm, Lifetime::kGroup);
}

Communicator* Communicator::sub(std::vector<std::uint32_t> ranks, std::uint32_t sub_rank,
                                std::uint64_t id) {
  return made([=, world = handle(), ranks = std::move(ranks)](HcclComm* comm) mutable {
    HcclCommConfig config;
    HcclCommConfigInit(&config);
    return HcclCreateSubCommConfig(&world, static_cast<std::uint32_t>(ranks.size()), ranks.data(),
                                   id, sub_rank, &config, comm);
  });
}

Communicator* Communicator::next_group(std::vector<std::uint32_t> ranks, const std::string& name,
                                       std::uint64_t timeout) {
  return made([=, world = handle(), ranks = std::move(ranks)](HcclComm* comm) {
    return HcclCommCreateNextGroup(world, static_cast<std::uint32_t>(ranks.size()), ranks.data(),
                                   name.c_str(), timeout, comm);
  });
}

Communicator* Communicator::shrink(std::vector<std::uint32_t> excluded) {
  return made([=, parent = handle(), excluded = std::move(excluded)](HcclComm* comm) {
    return HcclCommShrink(parent, excluded.data(), static_cast<std::uint32_t>(excluded.size()),
                          nullptr, comm);
  });
}

Communicator::Communicator(HcclComm handle, Lifetime lifetime)
    : calls_(handle), handle_(handle), lifetime_(lifetime), process_(::getpid()) {
  check(HcclGetRankId(handle_, &rank_));
  check(HcclGetRankSize(handle_, &size_));
  char name[COMM_NAME_MAX_LENGTH] = {};
  check(HcclGetCommName(handle_, name));
  name_ = name;
}

Communicator::~Communicator() {
  if (handle_ == nullptr || lifetime_ != Lifetime::kHandle || process_ != ::getpid()) return;
  if (calls_.under_way()) return;
  const WithoutGil others_run;
  static_cast<void>(HcclCommDestroy(handle_));
}

void Communicator::destroy() {
  const HcclComm handle = handle_;
  const bool ours = handle != nullptr && lifetime_ != Lifetime::kGroup && process_ == ::getpid();
  group_.reset();
  if (!ours || (interrupted() && calls_.under_way())) {
    handle_ = nullptr;
    return;
  }
  if (lifetime_ == Lifetime::kWorld) {
    calls_.run_last([] { return HcomDestroy(); });
  } else {
    calls_.run_last([=] { return HcclCommDestroy(handle); });
  }
  handle_ = nullptr;
  static_cast<void>(calls_.under_way());  // releases the memory of ended messages
}

HcclComm Communicator::handle() const {
  const std::string me = "communicator " + name_;
  if (process_ != ::getpid()) {
    raise_error(HCCL_E_UNAVAIL, me + " is of process " + std::to_string(process_) +
                                    ", of which this one is a fork: join in the child instead");
  }
  if (interrupted()) {
    raise_error(HCCL_E_SUSPENDING, me + ": an operation was interrupted, so it cannot go on");
  }
  if (handle_ == nullptr) raise_error(HCCL_E_PARA, me + " was destroyed");
  return handle_;
}

// ---- running ----

Communicator::Begun Communicator::launch(LibraryCall call, const Owners& owners, bool blocking) {
  if (tag_ != 0) {
    call = [tag = tag_, call = std::move(call)] {
      static_cast<void>(HcclSetCallTag(tag));
      const HcclResult result = call();
      static_cast<void>(HcclSetCallTag(0));
      return result;
    };
  }
  if (group_) {
    if (!blocking) refuse("the group: has only blocking operations; igroup() has a handle for all");
    group_->calls.push_back(std::move(call));
    group_->owners.insert(group_->owners.end(), owners.begin(), owners.end());
    return nullptr;
  }
  if (!blocking) return calls_.begin(std::move(call), owners);
  calls_.run(std::move(call), owners);
  return nullptr;
}

void Communicator::begin_group() {
  static_cast<void>(handle());
  if (group_) refuse("the group: is inside another one of this communicator");
  group_.emplace();
}

void Communicator::drop_group() { group_.reset(); }

Communicator::Begun Communicator::end_group(bool blocking) {
  static_cast<void>(handle());
  Group group = std::exchange(group_, std::nullopt).value();
  const auto run = [calls = std::move(group.calls)] {
    HcclResult result = HcclGroupStart();
    if (result != HCCL_SUCCESS) return result;
    for (const LibraryCall& call : calls) {
      if (result == HCCL_SUCCESS) result = call();
    }
    const HcclResult end = HcclGroupEnd();  // reports the error of a rejected call
    return end != HCCL_SUCCESS ? end : result;
  };
  return launch(run, group.owners, blocking);
}

void Communicator::abort(const std::string& reason) {
  if (handle_ == nullptr || process_ != ::getpid()) static_cast<void>(handle());  // raises
  const WithoutGil others_run;
  static_cast<void>(HcclCommAbort(handle_, reason.c_str()));
}

void Communicator::report_refusal(const std::string& reason) {
  calls_.run([comm = handle(), reason] { return HcclCommRefuse(comm, reason.c_str()); });
}

std::uint64_t Communicator::timeout() const {
  std::uint64_t milliseconds = 0;
  check(HcclCommGetTimeout(handle(), &milliseconds));
  return milliseconds;
}

void Communicator::set_timeout(std::uint64_t milliseconds) {
  check(HcclCommSetTimeout(handle(), milliseconds));
}

// ---- Python ----

void bind_communicator(nb::module_& module) {
  using nb::arg;
  nb::class_<Communicator> type(module, "Communicator");
  type.def_static("from_root_info", &Communicator::from_root_info, arg("info"), arg("size"),
                  arg("rank"))
      .def_static("from_rank_table", &Communicator::from_rank_table, arg("path"), arg("rank"))
      .def_static("join_by_launcher", &Communicator::join_by_launcher)
      .def_static("join_by_rank_table", &Communicator::join_by_rank_table, arg("path"), arg("rank"))
      .def_static("from_group", &Communicator::from_group, arg("group"))
      .def("sub", &Communicator::sub, arg("ranks"), arg("sub_rank"), arg("id"))
      .def("next_group", &Communicator::next_group, arg("ranks"), arg("name"), arg("timeout"))
      .def("shrink", &Communicator::shrink, arg("excluded"))
      .def_prop_ro("rank", &Communicator::rank)
      .def_prop_ro("size", &Communicator::size)
      .def_prop_ro("name", &Communicator::name)
      .def_prop_ro("usable", &Communicator::usable)
      .def_prop_ro("in_group", &Communicator::in_group)
      .def_prop_rw("timeout", &Communicator::timeout, &Communicator::set_timeout)
      .def("set_tag", &Communicator::set_tag, arg("tag"))
      .def("under_way", &Communicator::under_way)
      .def("begin_group", &Communicator::begin_group)
      .def("drop_group", &Communicator::drop_group)
      .def("end_group", &Communicator::end_group, arg("blocking"))
      .def("abort", &Communicator::abort, arg("reason"))
      .def("refuse", &Communicator::report_refusal, arg("reason"))
      .def("run_on_main_thread", [](Communicator& self) { self.calls().run_on_main_thread(); })
      .def("destroy", &Communicator::destroy);
  bind_collectives(type);
  bind_messages(type);

  module.def("root_info", [] {
    HcclRootInfo info{};
    check(HcclGetRootInfo(&info));
    return nb::bytes(info.internal, HCCL_ROOT_INFO_BYTES);
  });
}

}  // namespace hccl::python
