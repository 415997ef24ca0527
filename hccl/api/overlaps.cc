#include "hccl/api/overlaps.h"

#include <fmt/core.h>

#include <algorithm>
#include <string>

namespace hccl::api {
namespace {

// Returns the advice for an error text: which buffers hccl.h allows.
const char* hint(Op op) {
  switch (op) {
    case Op::kAllReduce:
    case Op::kReduce:
      return "pass recvBuf == sendBuf, or buffers apart";
    case Op::kReduceScatter:
    case Op::kScatter:
      return "pass recvBuf == sendBuf + rank * recvCount, or buffers apart";
    case Op::kAllGather:
      return "pass sendBuf == recvBuf + rank * sendCount, or buffers apart";
    case Op::kAllToAll:
      return "pass buffers apart";
    default:
      return "blocks must lie apart; only this rank's own one may stay in its place";
  }
}

std::string to_string(const Extent& extent) {
  const std::string number = extent.number < 0 ? "" : " " + std::to_string(extent.number);
  return fmt::format("{}{} ({} bytes at {:#x})", extent.name, number, extent.bytes, extent.at);
}

// The range from the first to the last element of all blocks.
struct Hull {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  bool ascending = true;  // each block begins after the one before, so none overlap
};

Hull hull_of(std::span<const Block> blocks) {
  Hull hull;
  for (const Block& block : blocks) {
    if (block.count == 0) continue;
    hull.begin = hull.end == 0 ? block.at : std::min(hull.begin, block.at);
    hull.ascending = hull.ascending && block.at >= hull.end;
    hull.end = std::max(hull.end, block.at + block.count);
  }
  return hull;
}

// The lengths of an operation's buffers, in elements, if all blocks have one length. If the call is
// in place, `out` begins `in_place` elements after `in`.
struct Places {
  std::uint64_t in;
  std::uint64_t out;
  std::int64_t in_place = 0;
};
Places places(const Call& call, int rank, int size) {
  const auto own = static_cast<std::int64_t>(call.count) * rank;
  const std::uint64_t one = call.count, all = one * static_cast<std::uint64_t>(size);
  const bool root = rank == call.root;
  switch (call.op) {
    case Op::kReduce:
      return {one, root ? one : 0};
    case Op::kScatter:
      return {root ? all : 0, one, own};
    case Op::kReduceScatter:
      return {all, one, own};
    case Op::kAllGather:
      return {one, all, -own};
    case Op::kAllToAll:  // never in place: all_to_all() refuses sendBuf == recvBuf
      return {all, all};
    default:
      return {one, one};
  }
}

}  // namespace

Status check_apart(const core::Communicator& comm, std::vector<Extent> extents, const char* hint) {
  std::erase_if(extents, [](const Extent& each) { return each.bytes == 0; });
  for (Extent& each : extents) {
    if (!mapped_twice(comm)) break;
    // NOLINTNEXTLINE(performance-no-int-to-ptr): it was a pointer
    const auto offset =
        comm.membership().heap->locate(reinterpret_cast<const void*>(each.at), each.bytes);
    if (offset) each.at = address(comm.membership().heap->base()) + *offset;
  }
  std::sort(extents.begin(), extents.end(),
            [](const Extent& a, const Extent& b) { return a.at < b.at; });
  // The extent that reaches farthest so far, among all extents and among the written extents.
  const Extent *any = nullptr, *written = nullptr;
  for (const Extent& each : extents) {
    const Extent* const other = each.written ? any : written;
    if (other != nullptr && !apart(other->at, other->bytes, each.at, each.bytes)) {
      return Status(Code::kPara, to_string(each) + " overlaps " + to_string(*other) + ": " + hint);
    }
    const auto end = [](const Extent* of) { return of == nullptr ? 0 : of->at + of->bytes; };
    if (end(&each) > end(any)) any = &each;
    if (each.written && end(&each) > end(written)) written = &each;
  }
  return {};
}

Status compare(const core::Communicator& comm, const Call& call) {
  const std::uint64_t element = size_of(call.type);
  const Places is = places(call, comm.rank(), comm.size());
  const auto in = address(call.in), out = address(call.out);
  const bool in_place = out - in == static_cast<std::uint64_t>(is.in_place) * element;
  if ((in_place || apart(in, is.in * element, out, is.out * element)) && !mapped_twice(comm)) {
    return {};
  }
  std::vector<Extent> extents{{out, is.out * element, true, "recvBuf"}};
  if (!in_place) extents.push_back({in, is.in * element, false, "sendBuf"});
  return check_apart(comm, std::move(extents), hint(call.op));
}

// Blocks of the two buffers may alternate in memory. So if the ranges of the buffers overlap, the
// blocks are compared one by one.
Status compare_blocks(const core::Communicator& comm, const Call& call) {
  const Block whole{0, call.count};
  const auto rank = static_cast<std::size_t>(comm.rank());
  const std::size_t element = size_of(call.type);
  const auto list = [&](std::span<const Block> blocks) {
    return blocks.empty() ? std::span(&whole, 1) : blocks;
  };
  const auto in = list(call.in_blocks), out = list(call.out_blocks);
  const auto at = [&](const void* buffer, std::uint64_t first) {
    return address(buffer) + first * element;
  };
  const Hull sent = hull_of(in), received = hull_of(out);
  if (received.ascending && !mapped_twice(comm) &&
      apart(at(call.in, sent.begin), (sent.end - sent.begin) * element,
            at(call.out, received.begin), (received.end - received.begin) * element)) {
    return {};
  }
  const Block &own_in = in[in.size() == 1 ? 0 : rank], &own_out = out[out.size() == 1 ? 0 : rank];
  const bool in_place = at(call.in, own_in.at) == at(call.out, own_out.at);
  std::vector<Extent> extents;
  const auto add = [&](const void* buffer, std::span<const Block> blocks, bool written,
                       const char* name) {
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      // In place, the rank's own block of `in` and of `out` is one extent.
      if (!written && in_place && &blocks[i] == &own_in) continue;
      extents.push_back({at(buffer, blocks[i].at), blocks[i].count * element, written, name,
                         static_cast<int>(i)});
    }
  };
  add(call.out, out, true, "recvBuf, block");
  add(call.in, in, false, "sendBuf, block");
  return check_apart(comm, std::move(extents), hint(call.op));
}

Status check_overlaps(const core::Communicator& comm, std::span<const exec::Transfer> transfers) {
  if (transfers.size() < 2) return {};
  std::vector<Extent> extents;
  extents.reserve(transfers.size());
  for (const exec::Transfer& each : transfers) {
    extents.push_back({address(each.data), each.count * size_of(each.type), !each.sending,
                       each.sending ? "the send of item" : "the receive of item",
                       static_cast<int>(extents.size())});
  }
  return check_apart(comm, std::move(extents), "only sends may share memory");
}

}  // namespace hccl::api
