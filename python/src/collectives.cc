// The collectives of a communicator.
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <numeric>
#include <utility>

#include "communicator.h"
#include "hccl/hccl.h"

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

struct Reduction {
  const char* name;
  HcclReduceOp op;
  bool of_bool;  // bools are allowed, because the reduction of 0s and 1s is 0 or 1
};
constexpr Reduction kReductions[] = {
    {"sum", HCCL_REDUCE_SUM, false},  {"prod", HCCL_REDUCE_PROD, true},
    {"max", HCCL_REDUCE_MAX, true},   {"min", HCCL_REDUCE_MIN, true},
    {"avg", HCCL_REDUCE_AVG, false},  {"band", HCCL_REDUCE_BAND, true},
    {"bor", HCCL_REDUCE_BOR, true},   {"bxor", HCCL_REDUCE_BXOR, true},
    {"land", HCCL_REDUCE_LAND, true}, {"lor", HCCL_REDUCE_LOR, true},
    {"lxor", HCCL_REDUCE_LXOR, true},
};

// Returns the offsets of blocks with these counts that lie one after another.
Counts begins(const Counts& counts) {
  Counts at(counts.size());
  std::exclusive_scan(counts.begin(), counts.end(), at.begin(), std::uint64_t{0});
  return at;
}

std::uint64_t sum(const Counts& counts) {
  return std::accumulate(counts.begin(), counts.end(), std::uint64_t{0});
}

}  // namespace

HcclReduceOp reduce_op(const std::string& name, const Array& array) {
  std::string names;
  for (const Reduction& each : kReductions) {
    if (name == each.name) {
      if (each.of_bool || array.type_name != "bool") return each.op;
      refuse("op: bool cannot be reduced by \"" + name + "\"; take \"lor\", \"land\" or \"lxor\"");
    }
    names += std::string(names.empty() ? "" : ", ") + "\"" + each.name + "\"";
  }
  refuse("op: expected one of " + names + ", not \"" + name + "\"");
}

// Returns the array of `out`, which must have `count` elements of the type of `like`.
Array Communicator::block(nb::handle out, const Array& like, std::uint64_t count) const {
  Array result = array_of(out, "out", Access::kWrite);
  if (result.type_name != like.type_name) {
    refuse("out: is of " + std::string(result.type_name) + ", array of " +
           std::string(like.type_name));
  }
  if (result.count != count) {
    refuse("out: has " + std::to_string(result.count) + " elements, not " + std::to_string(count));
  }
  return result;
}

Communicator::Begun Communicator::all_reduce(nb::handle array, const std::string& op,
                                             nb::handle out, double before, double after,
                                             bool blocking) {
  const HcclScale scale{before, after};
  const Array in = array_of(array, "array", out.is_none() ? Access::kWrite : Access::kRead);
  const HcclReduceOp reduce = reduce_op(op, in);
  const Array result = out.is_none() ? in : block(out, in, in.count);
  return launch(
      [comm = handle(), from = in.data, to = result.data, count = in.count, type = in.type, reduce,
       scale] { return HcclAllReduceScaled(from, to, count, type, reduce, &scale, comm, nullptr); },
      {in.owner, result.owner}, blocking);
}

Communicator::Begun Communicator::reduce(nb::handle array, const std::string& op,
                                         std::uint32_t root, nb::handle out, double before,
                                         double after, bool blocking) {
  const HcclScale scale{before, after};
  const bool in_place = root == rank_ && out.is_none();
  const Array in = array_of(array, "array", in_place ? Access::kWrite : Access::kRead);
  const HcclReduceOp reduce = reduce_op(op, in);
  Array result;
  if (root == rank_) result = in_place ? in : block(out, in, in.count);
  return launch(
      [comm = handle(), from = in.data, to = result.data, count = in.count, type = in.type, reduce,
       scale, root] {
        return HcclReduceScaled(from, to, count, type, reduce, &scale, root, comm, nullptr);
      },
      {in.owner, result.owner}, blocking);
}

Communicator::Begun Communicator::reduce_scatter(nb::handle array, const std::string& op,
                                                 nb::handle out, double before, double after,
                                                 bool blocking) {
  const HcclScale scale{before, after};
  const Array in = array_of(array, "array", Access::kRead);
  const HcclReduceOp reduce = reduce_op(op, in);
  const std::uint64_t share = share_of(in, size_);
  const Array result = block(out, in, share);
  return launch(
      [comm = handle(), from = in.data, to = result.data, share, type = in.type, reduce, scale] {
        return HcclReduceScatterScaled(from, to, share, type, reduce, &scale, comm, nullptr);
      },
      {in.owner, result.owner}, blocking);
}

Communicator::Begun Communicator::broadcast(nb::handle array, std::uint32_t root, bool blocking) {
  const Array in = array_of(array, "array", root == rank_ ? Access::kRead : Access::kWrite);
  return launch([comm = handle(), data = in.data, count = in.count, type = in.type,
                 root] { return HcclBroadcast(data, count, type, root, comm, nullptr); },
                {in.owner}, blocking);
}

Communicator::Begun Communicator::all_gather(nb::handle array, nb::handle out, bool blocking) {
  const Array in = array_of(array, "array", Access::kRead);
  const Array result = block(out, in, in.count * size_);
  return launch([comm = handle(), from = in.data, to = result.data, count = in.count,
                 type = in.type] { return HcclAllGather(from, to, count, type, comm, nullptr); },
                {in.owner, result.owner}, blocking);
}

Communicator::Begun Communicator::scatter(nb::handle array, std::uint32_t root, nb::handle out,
                                          bool blocking) {
  const Array result = array_of(out, "out", Access::kWrite);
  const std::uint64_t share = result.count;
  Array in;
  if (root == rank_) {
    in = array_of(array, "array", Access::kRead);
    static_cast<void>(block(out, in, share_of(in, size_)));
  }
  return launch([comm = handle(), from = in.data, to = result.data, share, type = result.type,
                 root] { return HcclScatter(from, to, share, type, root, comm, nullptr); },
                {in.owner, result.owner}, blocking);
}

Communicator::Begun Communicator::all_to_all(nb::handle array, nb::handle out, bool blocking) {
  const Array in = array_of(array, "array", Access::kRead);
  const std::uint64_t share = share_of(in, size_);
  const Array result = block(out, in, in.count);
  return launch(
      [comm = handle(), from = in.data, to = result.data, share, type = in.type] {
        return HcclAlltoAll(from, share, type, to, share, type, comm, nullptr);
      },
      {in.owner, result.owner}, blocking);
}

namespace {

Array sent_of(nb::handle array, const Counts& send_counts) {
  Array in = array_of(array, "array", Access::kRead);
  if (in.count != sum(send_counts)) {
    refuse("send_counts: add up to " + std::to_string(sum(send_counts)) + " elements, array has " +
           std::to_string(in.count));
  }
  return in;
}

}  // namespace

// Makes those checks of all_to_all_v that do not need the counts of other ranks.
void Communicator::check_sent(nb::handle array, const Counts& send_counts, nb::handle out) const {
  const Array in = sent_of(array, send_counts);
  if (!out.is_none()) static_cast<void>(block(out, in, array_of(out, "out", Access::kWrite).count));
}

Communicator::Begun Communicator::all_to_all_v(nb::handle array, Counts send_counts,
                                               Counts recv_counts, nb::handle out, bool blocking) {
  const Array in = sent_of(array, send_counts);
  const Array result = block(out, in, sum(recv_counts));
  return launch(
      [comm = handle(), from = in.data, to = result.data, type = in.type,
       sent = std::move(send_counts), received = std::move(recv_counts)] {
        return HcclAlltoAllV(from, sent.data(), begins(sent).data(), type, to, received.data(),
                             begins(received).data(), type, comm, nullptr);
      },
      {in.owner, result.owner}, blocking);
}

Communicator::Begun Communicator::barrier(bool blocking) {
  return launch([comm = handle()] { return HcclBarrier(comm, nullptr); }, {}, blocking);
}

void bind_collectives(nb::class_<Communicator>& type) {
  using nb::arg;
  const auto array = arg("array").none();  // array_of rejects None with a better text
  const auto out = arg("out").none();
  const auto blocking = arg("blocking");
  const auto prescale = arg("prescale");
  const auto postscale = arg("postscale");
  type.def("all_reduce", &Communicator::all_reduce, array, arg("op"), out, prescale, postscale,
           blocking)
      .def("reduce", &Communicator::reduce, array, arg("op"), arg("root"), out, prescale, postscale,
           blocking)
      .def("reduce_scatter", &Communicator::reduce_scatter, array, arg("op"), out, prescale,
           postscale, blocking)
      .def("broadcast", &Communicator::broadcast, array, arg("root"), blocking)
      .def("all_gather", &Communicator::all_gather, array, out, blocking)
      .def("scatter", &Communicator::scatter, array, arg("root"), out, blocking)
      .def("all_to_all", &Communicator::all_to_all, array, out, blocking)
      .def("check_sent", &Communicator::check_sent, array, arg("send_counts"), out)
      .def("all_to_all_v", &Communicator::all_to_all_v, array, arg("send_counts"),
           arg("recv_counts"), out, blocking)
      .def("barrier", &Communicator::barrier, blocking);
}

}  // namespace hccl::python
