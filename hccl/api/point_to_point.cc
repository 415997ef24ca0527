// Checks sends and receives, single or in a batch, and lists the messages of refused calls.
#include <algorithm>

#include "hccl/api/checks.h"
#include "hccl/api/operations.h"

namespace hccl::api {
namespace {

Result<std::array<Transfer, 1>> one(const Communicator& comm, bool sending, void* buffer,
                                    const char* buffer_name, std::uint64_t count, HcclDataType type,
                                    std::uint32_t peer, const char* peer_name, SrTag tag) {
  HCCL_RETURN_IF_ERROR(need(buffer, count, buffer_name));
  HCCL_RETURN_IF_ERROR(check_count(count, "count"));
  HCCL_ASSIGN_OR_RETURN(const DataType data, check_type(type));
  HCCL_RETURN_IF_ERROR(check_rank(peer, comm.size(), peer_name));
  if (static_cast<int>(peer) == comm.rank() && !in_call_group()) {
    return Status(Code::kPara, std::string(peer_name) +
                                   " is the caller itself, which only a batch or a group allows");
  }
  return std::array{Transfer{.sending = sending,
                             .peer = static_cast<int>(peer),
                             .data = buffer,
                             .count = count,
                             .type = data,
                             .tag = tag.value_or(0)}};
}

Result<Transfer> read_item(const HcclSendRecvItem& item, int size, std::size_t index) {
  const std::string name = "sendRecvInfo[" + std::to_string(index) + "].";
  if (item.sendRecvType != HCCL_SEND && item.sendRecvType != HCCL_RECV) {
    return Status(Code::kPara,
                  name + "sendRecvType is " + std::to_string(static_cast<int>(item.sendRecvType)));
  }
  HCCL_RETURN_IF_ERROR(need(item.buf, item.count, (name + "buf").c_str()));
  HCCL_RETURN_IF_ERROR(check_count(item.count, (name + "count").c_str()));
  HCCL_ASSIGN_OR_RETURN(const DataType data,
                        check_type(item.dataType, (name + "dataType").c_str()));
  HCCL_RETURN_IF_ERROR(check_rank(item.remoteRank, size, (name + "remoteRank").c_str()));
  return Transfer{item.sendRecvType == HCCL_SEND, static_cast<int>(item.remoteRank), item.buf,
                  item.count, data};
}

void add_messages(std::vector<Transfer>& out, const Communicator& comm, bool sending,
                  std::uint32_t peer) {
  const bool known = peer < static_cast<std::uint32_t>(comm.size()) &&
                     peer != static_cast<std::uint32_t>(comm.rank());
  for (int rank = 0; rank < comm.size(); ++rank) {
    if (known && rank != static_cast<int>(peer)) continue;
    const bool there = std::any_of(out.begin(), out.end(), [&](const Transfer& each) {
      return each.sending == sending && each.peer == rank;
    });
    if (!there) out.push_back({sending, rank, nullptr, 0, DataType::kInt8});
  }
}

}  // namespace

Messages messages_of(const Communicator& comm, decltype(&send) check, void*, std::uint64_t,
                     HcclDataType, std::uint32_t peer, SrTag) {
  std::vector<Transfer> out;
  add_messages(out, comm, check == &send, peer);
  return out;
}

Messages messages_of(const Communicator& comm, decltype(&batch_send_recv), HcclSendRecvItem* items,
                     std::uint32_t item_num) {
  std::vector<Transfer> out;
  for (std::uint32_t i = 0; items != nullptr && i < item_num; ++i) {
    add_messages(out, comm, items[i].sendRecvType == HCCL_SEND, items[i].remoteRank);
  }
  if (items == nullptr) {
    for (const bool sending : {false, true}) {
      add_messages(out, comm, sending, static_cast<std::uint32_t>(comm.size()));
    }
  }
  return out;
}

Result<std::array<Transfer, 1>> send(const Communicator& comm, void* sendBuf, std::uint64_t count,
                                     HcclDataType type, std::uint32_t destRank, SrTag tag) {
  return one(comm, true, sendBuf, "sendBuf", count, type, destRank, "destRank", tag);
}

Result<std::array<Transfer, 1>> recv(const Communicator& comm, void* recvBuf, std::uint64_t count,
                                     HcclDataType type, std::uint32_t srcRank, SrTag tag) {
  return one(comm, false, recvBuf, "recvBuf", count, type, srcRank, "srcRank", tag);
}

Result<std::vector<Transfer>> batch_send_recv(const Communicator& comm,
                                              const HcclSendRecvItem* sendRecvInfo,
                                              std::uint32_t itemNum) {
  if (itemNum != 0) HCCL_CHECK_PTR(sendRecvInfo);
  if (in_call_group()) {
    return Status(Code::kNotSupport, "a batch inside a group: use HcclSend and HcclRecv there");
  }
  std::vector<Transfer> transfers;
  transfers.reserve(itemNum);
  for (std::uint32_t i = 0; i < itemNum; ++i) {
    HCCL_ASSIGN_OR_RETURN(const Transfer transfer, read_item(sendRecvInfo[i], comm.size(), i));
    transfers.push_back(transfer);
  }
  if (const Status paired = exec::pair_self(transfers, comm.rank()); !paired.ok()) {
    return paired.with_context("sendRecvInfo");
  }
  return transfers;
}

}  // namespace hccl::api
