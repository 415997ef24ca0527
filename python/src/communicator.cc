#include "communicator.h"

#include <nanobind/stl/string.h>

#include <cstring>
#include <memory>

#include "hccl/hccl.h"
#include "hccl/hcom.h"

namespace hccl::python {
namespace {

[[noreturn]] void refuse(const std::string& text) { throw nb::value_error(text.c_str()); }

std::uint64_t share_of(const Array& array, std::uint32_t size) {
  if (array.count % size != 0) {
    refuse("array: has " + std::to_string(array.count) + " elements, not a multiple of the " +
           std::to_string(size) + " ranks");
  }
  return array.count / size;
}

}  // namespace

HcclReduceOp reduce_op(const std::string& name) {
  if (name == "sum") return HCCL_REDUCE_SUM;
  if (name == "prod") return HCCL_REDUCE_PROD;
  if (name == "max") return HCCL_REDUCE_MAX;
  if (name == "min") return HCCL_REDUCE_MIN;
  refuse("op: expected \"sum\", \"prod\", \"max\" or \"min\", not \"" + name + "\"");
}

// ---- joining and leaving ----

Communicator* Communicator::from_root_info(const nb::bytes& info, std::uint32_t size,
                                           std::uint32_t rank) {
  if (info.size() != HCCL_ROOT_INFO_BYTES) {
    refuse("info: has " + std::to_string(info.size()) + " bytes, a root info has " +
           std::to_string(HCCL_ROOT_INFO_BYTES));
  }
  const auto root = std::make_shared<HcclRootInfo>();
  std::memcpy(root->internal, info.data(), HCCL_ROOT_INFO_BYTES);
  const auto comm = std::make_shared<HcclComm>();
  BlockingCalls().run([=] { return HcclCommInitRootInfo(size, root.get(), rank, comm.get()); });
  return new Communicator(*comm, Kind::kOwn);
}

Communicator* Communicator::from_rank_table(const std::string& path, std::uint32_t rank) {
  const auto comm = std::make_shared<HcclComm>();
  BlockingCalls().run([=] { return HcclCommInitClusterInfo(path.c_str(), rank, comm.get()); });
  return new Communicator(*comm, Kind::kOwn);
}

Communicator* Communicator::world(LibraryCall join) {
  BlockingCalls().run(std::move(join));
  HcclComm comm = nullptr;
  check(HcomGetCommHandleByGroup(HCCL_WORLD_GROUP, &comm));
  return new Communicator(comm, Kind::kWorld);
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
  return new Communicator(comm, Kind::kGroup);
}

Communicator::Communicator(HcclComm handle, Kind kind) : handle_(handle), kind_(kind) {
  check(HcclGetRankId(handle_, &rank_));
  check(HcclGetRankSize(handle_, &size_));
  char name[COMM_NAME_MAX_LENGTH] = {};
  check(HcclGetCommName(handle_, name));
  name_ = name;
}

Communicator::~Communicator() {
  if (usable() && kind_ == Kind::kOwn) {
    nb::gil_scoped_release others_run;
    static_cast<void>(HcclCommDestroy(handle_));
  }
}

void Communicator::destroy() {
  if (!usable() || kind_ == Kind::kGroup) {
    handle_ = nullptr;
    return;
  }
  const HcclComm handle = handle_;
  if (kind_ == Kind::kWorld) {
    calls_.run([] { return HcomDestroy(); });
  } else {
    calls_.run([=] { return HcclCommDestroy(handle); });
  }
  handle_ = nullptr;
}

HcclComm Communicator::handle() const {
  if (interrupted()) {
    raise_error(HCCL_E_SUSPENDING,
                "communicator " + name_ + ": an operation was interrupted, so it cannot go on");
  }
  if (handle_ == nullptr) raise_error(HCCL_E_PARA, "communicator " + name_ + " was destroyed");
  return handle_;
}

// ---- operations ----

// The array for a result of `count` elements of the type of `like`.
Array Communicator::block(nb::handle out, const Array& like, const char* argument,
                          std::uint64_t count) const {
  Array result = array_of(out, argument, Access::kWrite);
  if (result.type != like.type) {
    refuse(std::string(argument) + ": is of " + type_name(result.type) + ", array of " +
           type_name(like.type));
  }
  if (result.count != count) {
    refuse(std::string(argument) + ": has " + std::to_string(result.count) + " elements, not " +
           std::to_string(count));
  }
  return result;
}

void Communicator::all_reduce(nb::handle array, const std::string& op, nb::handle out) {
  const HcclReduceOp reduce = reduce_op(op);
  const Array in = array_of(array, "array", out.is_none() ? Access::kWrite : Access::kRead);
  const Array result = out.is_none() ? in : block(out, in, "out", in.count);
  calls_.run([comm = handle(), from = in.data, to = result.data, count = in.count, type = in.type,
              reduce] { return HcclAllReduce(from, to, count, type, reduce, comm, nullptr); },
             {in.owner, result.owner});
}

void Communicator::broadcast(nb::handle array, std::uint32_t root) {
  const Array in = array_of(array, "array", root == rank_ ? Access::kRead : Access::kWrite);
  calls_.run([comm = handle(), data = in.data, count = in.count, type = in.type,
              root] { return HcclBroadcast(data, count, type, root, comm, nullptr); },
             {in.owner});
}

void Communicator::all_gather(nb::handle array, nb::handle out) {
  const Array in = array_of(array, "array", Access::kRead);
  const Array result = block(out, in, "out", in.count * size_);
  calls_.run([comm = handle(), from = in.data, to = result.data, count = in.count,
              type = in.type] { return HcclAllGather(from, to, count, type, comm, nullptr); },
             {in.owner, result.owner});
}

void Communicator::reduce_scatter(nb::handle array, const std::string& op, nb::handle out) {
  const HcclReduceOp reduce = reduce_op(op);
  const Array in = array_of(array, "array", Access::kRead);
  const std::uint64_t share = share_of(in, size_);
  const Array result = block(out, in, "out", share);
  calls_.run([comm = handle(), from = in.data, to = result.data, share, type = in.type,
              reduce] { return HcclReduceScatter(from, to, share, type, reduce, comm, nullptr); },
             {in.owner, result.owner});
}

void Communicator::reduce(nb::handle array, const std::string& op, std::uint32_t root,
                          nb::handle out) {
  const HcclReduceOp reduce = reduce_op(op);
  const bool in_place = root == rank_ && out.is_none();
  const Array in = array_of(array, "array", in_place ? Access::kWrite : Access::kRead);
  Array result;
  if (root == rank_) result = in_place ? in : block(out, in, "out", in.count);
  calls_.run(
      [comm = handle(), from = in.data, to = result.data, count = in.count, type = in.type, reduce,
       root] { return HcclReduce(from, to, count, type, reduce, root, comm, nullptr); },
      {in.owner, result.owner});
}

void Communicator::scatter(nb::handle array, std::uint32_t root, nb::handle out) {
  Array in;
  const Array result = array_of(out, "out", Access::kWrite);
  if (root == rank_) {
    in = array_of(array, "array", Access::kRead);
    static_cast<void>(block(out, in, "out", share_of(in, size_)));
  }
  calls_.run(
      [comm = handle(), from = in.data, to = result.data, share = result.count, type = result.type,
       root] { return HcclScatter(from, to, share, type, root, comm, nullptr); },
      {in.owner, result.owner});
}

void Communicator::all_to_all(nb::handle array, nb::handle out) {
  const Array in = array_of(array, "array", Access::kRead);
  const std::uint64_t share = share_of(in, size_);
  const Array result = block(out, in, "out", in.count);
  calls_.run(
      [comm = handle(), from = in.data, to = result.data, share, type = in.type] {
        return HcclAlltoAll(from, share, type, to, share, type, comm, nullptr);
      },
      {in.owner, result.owner});
}

void Communicator::send(nb::handle array, std::uint32_t dest) {
  const Array in = array_of(array, "array", Access::kRead);
  calls_.run([comm = handle(), data = in.data, count = in.count, type = in.type,
              dest] { return HcclSend(data, count, type, dest, comm, nullptr); },
             {in.owner});
}

void Communicator::recv(nb::handle array, std::uint32_t src) {
  const Array result = array_of(array, "array", Access::kWrite);
  calls_.run([comm = handle(), data = result.data, count = result.count, type = result.type,
              src] { return HcclRecv(data, count, type, src, comm, nullptr); },
             {result.owner});
}

void Communicator::barrier() {
  calls_.run([comm = handle()] { return HcclBarrier(comm, nullptr); });
}

// ---- Python ----

void bind_communicator(nb::module_& module) {
  using nb::arg;
  const auto array = arg("array").none();  // None is refused by array_of, with a better text
  const auto out = arg("out").none();
  nb::class_<Communicator>(module, "Communicator")
      .def_static("from_root_info", &Communicator::from_root_info)
      .def_static("from_rank_table", &Communicator::from_rank_table)
      .def_static("join_by_launcher", &Communicator::join_by_launcher)
      .def_static("join_by_rank_table", &Communicator::join_by_rank_table)
      .def_static("from_group", &Communicator::from_group)
      .def_prop_ro("rank", &Communicator::rank)
      .def_prop_ro("size", &Communicator::size)
      .def_prop_ro("name", &Communicator::name)
      .def("all_reduce", &Communicator::all_reduce, array, arg("op"), out)
      .def("broadcast", &Communicator::broadcast, array, arg("root"))
      .def("all_gather", &Communicator::all_gather, array, out)
      .def("reduce_scatter", &Communicator::reduce_scatter, array, arg("op"), out)
      .def("reduce", &Communicator::reduce, array, arg("op"), arg("root"), out)
      .def("scatter", &Communicator::scatter, array, arg("root"), out)
      .def("all_to_all", &Communicator::all_to_all, array, out)
      .def("send", &Communicator::send, array, arg("dest"))
      .def("recv", &Communicator::recv, array, arg("src"))
      .def("barrier", &Communicator::barrier)
      .def("destroy", &Communicator::destroy);

  module.def("root_info", [] {
    HcclRootInfo info;
    check(HcclGetRootInfo(&info));
    return nb::bytes(info.internal, HCCL_ROOT_INFO_BYTES);
  });
}

}  // namespace hccl::python
